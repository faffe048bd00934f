// Package conn connects to Locket servers over gRPC: TLS, credentials, silent connections. It is all that a program needs which
// makes the calls of models.LocketClient itself; package lock connects with the same options (lock.Dial, lock.WithDial).
//
//	c, err := conn.Dial([]string{"db-1.internal:8891", "db-2.internal:8891"},
//		conn.WithTLSFiles(conn.Files{CA: "ca.crt", Cert: "client.crt", Key: "client.key"}))
//	defer c.Close()
//	client := models.NewLocketClient(c)
package conn
