<?php
// As Nextcloud does: the route is what follows the front controller's name.
header('Content-Type: text/plain');
$path = $_SERVER['PATH_INFO'] ?? '';
echo "front {$_SERVER['REQUEST_METHOD']} $path uri={$_SERVER['REQUEST_URI']} query={$_SERVER['QUERY_STRING']}\n";
