// Package lease holds a lock by calls that renew it, of Lock or of claims: one loop for both (keeper), which asks a grantor.
package lease
