package proc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// HTTPReady returns a probe of a health endpoint.
func HTTPReady(url string) func(context.Context) error {
	return probeWith(&http.Client{Timeout: 2 * time.Second}, url)
}

// HTTPSReady returns a probe that reads the client's certificates at each call: they are renewed at run time.
func HTTPSReady(client func() (*tls.Config, error), url string) func(context.Context) error {
	return func(ctx context.Context) error {
		config, err := client()
		if err != nil {
			return fmt.Errorf("probing %s: %w", url, err)
		}
		transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
		return probeWith(&http.Client{Timeout: 5 * time.Second, Transport: transport}, url)(ctx)
	}
}

// SocketReady returns a probe of a Unix socket.
func SocketReady(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func probeWith(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("probing %s: %w", url, err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return fmt.Errorf("probing %s: %w", url, err)
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("probing %s: %s", url, resp.Status)
		}
		return nil
	}
}
