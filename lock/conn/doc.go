// Package conn connects to Locket servers over gRPC, with TLS and credentials. Package lock uses the same options
// (lock.Dial, lock.WithDial). Programs that call models.LocketClient themselves need only this package:
//
//	c, err := conn.Dial([]string{"db-1.internal:8891", "db-2.internal:8891"},
//		conn.WithTLSFiles(conn.Files{CA: "ca.crt", Cert: "client.crt", Key: "client.key"}))
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	client := models.NewLocketClient(c)
//
// A connection to another machine needs WithTLS, WithTLSFiles or WithCredentials, or WithInsecure for plain text. On
// this machine plain text is the default. Callers identify themselves with a certificate in Files, or with
// WithCredentialFile.
package conn
