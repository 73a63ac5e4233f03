<?php
// Writes what it was given: the server's variables in order, the query, the form, the body.
header('Content-Type: text/plain');
header('X-Program: env');
$wanted = '/^(HTTP_.*|[A-Z]*_?(NAME|INFO|TRANSLATED|ROOT|URI|STRING|METHOD|PROTOCOL|TYPE|LENGTH|ADDR|HOST'
    . '|STATUS|USER|FILENAME|SELF|INTERFACE|SCHEME|HTTPS|AUTH_.*)|SERVER_PORT|MY_.*|X_.*)$/';
$seen = array_filter($_SERVER, 'is_string');
ksort($seen, SORT_STRING);
foreach ($seen as $name => $value) {
    if (preg_match($wanted, $name)) {
        echo "$name=$value\n";
    }
}
echo 'get: ', json_encode($_GET), "\n", 'post: ', json_encode($_POST), "\n";
echo file_get_contents('php://input');
