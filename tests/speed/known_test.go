package speed_test

// known are the files that use real time without a reason, and how often.
var known = map[string]int{
	"committer/committer_test.go": 1,
	"handlers/claim_test.go":      1,
	"server/clocks_test.go":       1,
	"server/closed_doors_test.go": 3,
}
