<?php exit ?> admin:hash
