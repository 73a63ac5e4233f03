<?php echo "executed";
