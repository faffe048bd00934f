package lock

import "github.com/locket-service/locket/lock/conn"

// Dial returns a connection to one or several servers, for models.NewLocketClient and the runners of calls. Close it
// after use. Package conn documents how it connects, and has the options.
func Dial(addresses []string, options ...conn.Option) (*conn.Conn, error) {
	return conn.Dial(addresses, options...)
}
