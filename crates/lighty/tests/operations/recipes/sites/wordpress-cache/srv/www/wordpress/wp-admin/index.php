<?php
header('Content-Type: text/plain');
echo "admin {$_SERVER['SCRIPT_NAME']} {$_SERVER['REQUEST_URI']}\n";
