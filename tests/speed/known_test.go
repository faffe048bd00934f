package speed_test

// known are the files that use real time without a reason, and how often.
var known = map[string]int{}
