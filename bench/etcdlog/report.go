package main

import (
	"context"
	"errors"

	etcd "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// reader is the part of a client that reads.
type reader interface {
	Get(ctx context.Context, key string, opts ...etcd.OpOption) (*etcd.GetResponse, error)
}

func rangeOf(l *etcdLog) []etcd.OpOption {
	return []etcd.OpOption{etcd.WithRange(l.prefix + "log0"), etcd.WithLimit(5000)}
}

// unwrapAll returns the innermost error.
func unwrapAll(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// codeOf returns the gRPC code of an error of gRPC or of etcd's client.
func codeOf(err error) codes.Code {
	var own interface{ Code() codes.Code }
	if errors.As(err, &own) {
		return own.Code()
	}
	return status.Code(unwrapAll(err))
}
