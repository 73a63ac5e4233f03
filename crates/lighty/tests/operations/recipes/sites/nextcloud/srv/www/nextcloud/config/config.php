<?php $CONFIG = [];
