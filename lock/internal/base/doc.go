// Package base has what all ways of holding a lock share: settings, errors, what an answer means, and the interface of a Holder.
package base
