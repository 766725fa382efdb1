package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"drydock.dev/local/internal/layout"
)

// Client sends commands to a cluster's supervisor.
type Client struct{ http *http.Client }

// NewClient returns a client, which connects at its first call.
func NewClient(c layout.Cluster) Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", c.Socket())
	}
	return Client{http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// ErrGone means that the supervisor died before it answered. The call may be repeated with its successor.
var ErrGone = errors.New("the supervisor died before it answered; its log may say why")

// Call runs a command and passes on its progress.
func (c Client) Call(ctx context.Context, path string, onProgress func(Progress)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://supervisor"+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking the supervisor: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("asking the supervisor: %w (%w)", ErrGone, err)
	}
	if err != nil {
		return fmt.Errorf("asking the supervisor: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the supervisor: %s", resp.Status)
	}
	for decoder := json.NewDecoder(resp.Body); ; {
		var p Progress
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("asking the supervisor: it ended before it was done; its log says why")
		}
		if err != nil {
			return fmt.Errorf("reading the supervisor's answer: %w", err)
		}
		if p.Error != "" {
			return errors.New(p.Error)
		}
		if p.Done {
			return nil
		}
		onProgress(p)
	}
}

// Down stops the cluster and the supervisor.
func (c Client) Down(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://supervisor/down", http.NoBody)
	if err != nil {
		return fmt.Errorf("asking the supervisor to end: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking the supervisor to end: %w", err)
	}
	return resp.Body.Close()
}
