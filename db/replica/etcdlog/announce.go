package etcdlog

import (
	"bytes"
	"context"
	"strings"

	etcd "go.etcd.io/etcd/client/v3"
)

// Announce implements order.Log. It writes only if the value changes, and never over a later one: an attempt may be late.
func (l *Log) Announce(ctx context.Context, server string, about []byte) error {
	key := l.server(server)
	change := etcd.OpPut(key, string(about))
	if about == nil {
		change = etcd.OpDelete(key)
	}
	for {
		response, err := l.get(ctx, key)
		if err != nil {
			return err
		}
		revision, is := int64(0), []byte(nil)
		for _, pair := range response.Kvs {
			revision, is = pair.GetModRevision(), append([]byte{}, pair.GetValue()...)
		}
		if (is == nil) == (about == nil) && bytes.Equal(is, about) {
			return nil
		}
		unchanged := etcd.Compare(etcd.ModRevision(key), "=", revision)
		written, err := l.commit(ctx, []etcd.Cmp{unchanged}, []etcd.Op{change}, nil)
		if err != nil || written.Succeeded {
			return err
		}
	}
}

// Announced implements order.Log.
func (l *Log) Announced(ctx context.Context) (map[string][]byte, error) {
	folder := l.server("")
	response, err := l.get(ctx, folder, etcd.WithPrefix())
	if err != nil {
		return nil, err
	}
	servers := make(map[string][]byte)
	for _, pair := range response.Kvs {
		servers[strings.TrimPrefix(string(pair.GetKey()), folder)] = append([]byte{}, pair.GetValue()...)
	}
	return servers, nil
}
