package etcdlog_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/fixtures"
)

// admin returns etcd's own client.
func admin(t *testing.T, e *fixtures.Etcd, user, password string) *etcd.Client {
	t.Helper()
	client, err := etcd.New(etcd.Config{Endpoints: e.Endpoints(), Username: user, Password: password, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// errOf drops a result.
func errOf[T any](_ T, err error) error { return err }

// as returns options with a user and a password.
func as(t *testing.T, o etcdlog.Options, user, password string) etcdlog.Options {
	t.Helper()
	o.User, o.PasswordFile = user, filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(o.PasswordFile, []byte(password+"\n"), 0o600))
	return o
}

// addUser adds a user whose role has the same name, and a right on the keys with a prefix.
func addUser(t *testing.T, root *etcd.Client, user, prefix string, right etcd.PermissionType) {
	t.Helper()
	ctx := t.Context()
	must(t, errOf(root.RoleAdd(ctx, user)),
		errOf(root.RoleGrantPermission(ctx, user, prefix, etcd.GetPrefixRangeEnd(prefix), right)),
		errOf(root.UserAdd(ctx, user, user)), errOf(root.UserGrantRole(ctx, user, user)))
}

// refusals are all ways to be refused.
func refusals(ctx context.Context, l *etcdlog.Log) map[string]error {
	_, last := l.Last(ctx, 0)
	_, check := l.Check(ctx)
	return map[string]error{
		"last": last, "check": check, "raise": l.Raise(ctx, 0, 0, nil), "trim": l.Trim(ctx, 1),
		"follow": l.Follow(ctx, 0, func(order.Event) error { return errors.New("followed") }),
	}
}

// With a user that has the rights on its prefix alone everything works. Without a right, the error names it.
func TestRights(t *testing.T) {
	t.Parallel()
	e := fixtures.NewEtcd(t, fixtures.Etcd34, 1, fixtures.WithEtcdArgs("--bcrypt-cost=4"))
	ctx := t.Context()
	open1 := admin(t, e, "", "")
	must(t, errOf(open1.RoleAdd(ctx, "root")), errOf(open1.UserAdd(ctx, "root", "root")), errOf(open1.UserGrantRole(ctx, "root", "root")))
	addUser(t, open1, "reader", "/locket/", etcd.PermissionType(etcd.PermRead))
	addUser(t, open1, "elsewhere", "/other/", etcd.PermissionType(etcd.PermReadWrite))
	addUser(t, open1, "locket", "/test/", etcd.PermissionType(etcd.PermReadWrite))
	o := quietly(e)
	early := open(t, as(t, o, "locket", "locket"))
	must(t, errOf(early.Cluster(ctx, 1, 0))) // the user counts as soon as etcd demands one
	must(t, errOf(open1.AuthEnable(ctx)))
	must(t, errOf(early.Cluster(ctx, 1, 0)))

	const wrong = "invalid user ID or password; check --etcd-user and --etcd-password-file"
	const missing = `needs the right to read and write all keys below "/locket/"`
	locket := o
	locket.Prefix = "/locket/"
	for _, refused := range []struct {
		name string
		o    etcdlog.Options
		says string
		may  []string
	}{
		{"elsewhere", as(t, locket, "elsewhere", "elsewhere"), missing, nil},
		{"reader", as(t, locket, "reader", "reader"), missing, []string{"last", "trim", "follow"}},
		{"nobody", locket, "--etcd-user", nil},
		{"a wrong password", as(t, locket, "locket", "x"), wrong, nil},
		{"an unknown user", as(t, locket, "unknown", "x"), wrong, nil},
	} {
		for call, err := range refusals(ctx, open(t, refused.o)) {
			if strings.Contains(strings.Join(refused.may, " "), call) {
				if errors.Is(err, order.ErrUnavailable) {
					t.Errorf("%s: %s: %v", refused.name, call, err)
				}
			} else if !errors.Is(err, order.ErrUnavailable) || !strings.Contains(err.Error(), refused.says) {
				t.Errorf("%s: %s: %v, want %q", refused.name, call, err, refused.says)
			}
		}
	}
	testTokens(t, e, o, early)
}

// testTokens restarts etcd, which forgets all tokens, and changes the password.
func testTokens(t *testing.T, e *fixtures.Etcd, o etcdlog.Options, l *etcdlog.Log) {
	t.Helper()
	must(t, e.Members[0].Kill(), e.Members[0].Start())
	must(t, l.Raise(t.Context(), 0, 0, nil))
	root := admin(t, e, "root", "root")
	must(t, errOf(root.UserChangePassword(t.Context(), "locket", "secret")))
	if err := l.Append(t.Context(), 1, 1, nil); err == nil || !strings.Contains(err.Error(), "invalid user ID or password") {
		t.Errorf("with the previous password: %v", err)
	}
	l = open(t, as(t, o, "locket", "secret"))
	must(t, l.Append(t.Context(), 1, 1, content(1)), l.Append(t.Context(), 1, 2, content(2)), l.Trim(t.Context(), 1), l.Announce(t.Context(), "a", nil))
	r := &reader{log: l}
	r.at.Store(1)
	must(t, r.run(t.Context(), 2), errOf(l.Check(t.Context())))
}
