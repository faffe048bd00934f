// Package ordertest tests logs of a cluster: a suite that every order.Log passes, and a log in memory with faults.
package ordertest
