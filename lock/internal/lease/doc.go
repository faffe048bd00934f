// Package lease holds a lock by calls that renew it: calls of Lock, or of claims. One loop (hold.go) makes both
// (calls.go).
package lease
