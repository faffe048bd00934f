package lock

import "github.com/locket-service/locket/lock/conn"

// Dial returns a connection to one or several servers, for models.NewLocketClient, NewLockRunner, NewPresenceRunner
// and NewClaimRunner. Close it after use. Package conn has the options and explains how it connects.
func Dial(addresses []string, options ...conn.Option) (*conn.Conn, error) {
	return conn.Dial(addresses, options...)
}
