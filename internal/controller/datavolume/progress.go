package datavolume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// patience bounds a request for a worker's progress, which occupies one of the loop's workers.
const patience = time.Second

// dialPatience is the part of patience for the connection. Slow workers accept connections, too.
const dialPatience = patience * 3 / 4

// maxProgress bounds the response of a worker, which a hostile image may control.
const maxProgress = 4 << 10

// maxHeader bounds the response's headers.
const maxHeader = 16 << 10

// Ask requests a worker's progress.
func Ask(ctx context.Context, pod *corev1.Pod) (*transfer.Progress, error) {
	if pod.Status.PodIP == "" {
		return nil, fmt.Errorf("pod %s has no address yet", pod.Name)
	}
	url := "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(transfer.ProgressPort)) + transfer.ProgressPath
	return ask(ctx, url)
}

// direct follows no redirects, so that a worker can't send virt-controller elsewhere.
var direct = &http.Client{
	Timeout: patience,
	Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: dialPatience}).DialContext, MaxResponseHeaderBytes: maxHeader,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// noConnection reports whether the connection timed out, and was not refused: packets are lost on the way.
func noConnection(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" && dial.Timeout()
}

func ask(ctx context.Context, url string) (*transfer.Progress, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for progress: %w", err)
	}
	resp, err := direct.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for progress: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for progress: the worker answers %s", resp.Status)
	}
	var progress transfer.Progress
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxProgress)).Decode(&progress); err != nil {
		return nil, fmt.Errorf("reading a worker's progress: %w", err)
	}
	return &progress, nil
}
