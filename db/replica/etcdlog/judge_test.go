package etcdlog

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		member         Member
		warning, wrong string
	}{
		{Member{Version: "3.3.27"}, "", "3.4 or later is needed"},
		{Member{Version: "3.4.0"}, "", ""},
		{Member{Version: "3.7.12"}, "", ""},
		{Member{Version: "3.8.0-alpha.0"}, "3.7 is the latest that is tested", ""},
		{Member{Version: "4.0.0"}, "which is not tested", ""},
		{Member{Version: "unknown"}, "which is not tested", ""},
		{Member{Version: "3.4.23", Size: 1 << 30}, "", ""},
		{Member{Version: "3.4.23", Size: 1800 << 20}, "etcd's default quota, 2048 MiB", ""},
		{Member{Version: "3.7.3", Size: 1800 << 20, Quota: 8 << 30}, "", ""},
		{Member{Version: "3.7.3", Size: 7 << 30, Quota: 8 << 30}, "its quota, 8192 MiB", ""},
		{Member{Version: "3.7.3", Alarms: []string{"memberID:1 alarm:CORRUPT"}}, "alarm:CORRUPT", ""},
	} {
		var r Report
		err := r.judge(test.member)
		if test.wrong == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%+v: %v, want %q", test.member, err, test.wrong)
		}
		text := strings.Join(r.Warnings, "\n")
		if test.warning == "" != (text == "") || !strings.Contains(text, test.warning) {
			t.Errorf("%+v: %q, want %q", test.member, text, test.warning)
		}
	}
}

// TestTwoLeaders: where several members say that they lead, the member with the latest term does. The others have not heard of the election.
func TestTwoLeaders(t *testing.T) {
	for want, terms := range [][]uint64{{9, 7, 8}, {7, 9, 8}, {7, 8, 9}} {
		if leader, err := Leader(t.Context(), terms...); err != nil || leader != int64(want) {
			t.Errorf("of leaders in the terms %v, member %d leads, want %d (%v)", terms, leader, want, err)
		}
	}
}
