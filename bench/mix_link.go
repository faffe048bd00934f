package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// links are persistent connections, each used for one request at a time. They take half of the processor time of
// net/http's client, which leaves more for the server on the same machine.
type links struct {
	ctx     context.Context // closed when it ends
	address string
	idle    chan *link
}

type link struct {
	net.Conn
	reader *bufio.Reader
}

func newLinks(ctx context.Context, address string) *links {
	return &links{ctx, address, make(chan *link, maxJobs)}
}

func (l *links) take() (*link, error) {
	select {
	case free := <-l.idle:
		return free, nil
	default:
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(l.ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	return &link{conn, bufio.NewReader(conn)}, nil
}

// send sends a request and returns its answer.
func (l *links) send(r request) (code int, body []byte, err error) {
	via, err := l.take()
	if err != nil {
		return 0, nil, err
	}
	prefer := ""
	if r.wait {
		prefer = "Prefer: wait=30\r\n"
	}
	_, err = fmt.Fprintf(via, "%s %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n"+
		"Content-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		r.method, r.path, l.address, prefer, len(r.body), r.body)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(via.reader, &http.Request{Method: r.method})
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, err
	}
	l.idle <- via
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body, err = gunzip(body)
	}
	return resp.StatusCode, body, err
}

func gunzip(body []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
