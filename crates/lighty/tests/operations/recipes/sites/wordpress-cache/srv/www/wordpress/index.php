<?php
// As WordPress does: the page follows from the URL that the client asked for.
header('Content-Type: text/plain');
echo "front {$_SERVER['REQUEST_METHOD']} {$_SERVER['REQUEST_URI']} query={$_SERVER['QUERY_STRING']}\n";
