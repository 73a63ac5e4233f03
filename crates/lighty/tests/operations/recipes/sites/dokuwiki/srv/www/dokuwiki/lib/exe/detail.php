<?php
header("Content-Type: text/plain");
echo "detail {$_GET['media']}\n";
