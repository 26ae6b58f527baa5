"""Other systems that order messages, measured as ordercast is: a node a namespace, all on one bridge."""
