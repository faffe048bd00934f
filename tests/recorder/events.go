package recorder

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/history"
)

// Events watches all claims over HTTP, at the server with a URL, until ctx is done, and records the events. It calls
// began once everything that was live has come.
func (r *Recorder) Events(ctx context.Context, client *http.Client, url string, began func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/events", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r.mu.Lock()
	w := r.begin(ctx, &models.WatchRequest{})
	r.mu.Unlock()
	defer r.close(w)
	lines := bufio.NewScanner(resp.Body)
	for name := ""; lines.Scan(); {
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = event
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if err := r.hear(w, name, []byte(data)); err != nil {
			return err
		}
		if name == "synced" {
			began()
		}
	}
	return lines.Err()
}

// close notes that a watch hears no more.
func (r *Recorder) close(w *watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.open = false
}

// hear notes an event.
func (r *Recorder) hear(w *watch, name string, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch name {
	case "claim":
		var c restClaim
		if err := json.Unmarshal(data, &c); err != nil {
			return err
		}
		w.Had = append(w.Had, c.told(""))
	case "synced":
		w.Synced = true
	case "transition":
		var t struct {
			Before string
			Claim  restClaim
		}
		if err := json.Unmarshal(data, &t); err != nil {
			return err
		}
		w.Reports = append(w.Reports, t.Claim.told(t.Before))
	}
	return nil
}

func (c restClaim) told(before string) history.Report {
	return history.Report{Resource: c.Resource, Claim: c.ID, Before: statusOf(before), After: statusOf(c.Status), Token: c.Token, Version: c.Version}
}
