// Package base has the parts that all ways of holding a lock share: settings, errors, the classification of answers,
// and the interface of a Holder.
package base
