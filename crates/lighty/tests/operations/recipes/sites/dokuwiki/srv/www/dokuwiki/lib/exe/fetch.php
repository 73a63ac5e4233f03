<?php
header('Content-Type: text/plain');
echo "media {$_GET['media']} ", $_GET['w'] ?? 'full', "\n";
