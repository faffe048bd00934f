// Package lease holds a lock by calls that renew it, of Lock or of claims: the same loop (hold.go) makes either (calls.go).
package lease
