<?php
header('Content-Type: text/plain');
$id = $_GET['id'] ?? 'start';
$do = $_GET['do'] ?? 'show';
echo "page $id $do\n";
