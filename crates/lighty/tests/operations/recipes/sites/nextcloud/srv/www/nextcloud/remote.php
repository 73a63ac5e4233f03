<?php
// WebDAV: methods and bodies reach the program.
$path = $_SERVER['PATH_INFO'] ?? '';
if ($_SERVER['REQUEST_METHOD'] === 'PROPFIND') {
    http_response_code(207);
    header('Content-Type: application/xml');
}
echo "{$_SERVER['REQUEST_METHOD']} $path ", strlen(file_get_contents('php://input')), "\n";
