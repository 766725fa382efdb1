package web

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/reach"
)

// Timeouts of a server's steps, after which it counts as unreachable.
const (
	dialTimeout     = 15 * time.Second
	tlsTimeout      = 15 * time.Second
	responseTimeout = time.Minute
)

// maxHeader limits the headers of a server's response, in bytes: four times those of a server with many cookies.
const maxHeader = 64 << 10

// maxRedirects is for one request.
const maxRedirects = 50

type access struct {
	user, password string
	headers        http.Header
}

// New returns the source of a job.
func New(j *job.Job) (*Source, error) {
	address, err := url.Parse(j.Task.URL)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, job.Faultf(transfer.ReasonSourceRefused, "the source's URL is no address on an HTTP or HTTPS server")
	}
	access, err := readAccess(j)
	if err != nil {
		return nil, err
	}
	transport, err := NewTransport(j)
	if err != nil {
		return nil, err
	}
	if j.Task.Insecure {
		transport.TLSClientConfig.InsecureSkipVerify = true // as the DataVolume requests (insecureSkipVerify)
	}
	return &Source{client: &http.Client{Transport: transport, CheckRedirect: access.redirect}, url: address, access: access}, nil
}

// NewTransport returns a transport with the job's timeouts and certificate authorities, also for sources that use
// more than HTTP.
func NewTransport(j *job.Job) (*http.Transport, error) {
	roots, err := readRoots(j)
	if err != nil {
		return nil, err
	}
	guard, err := reach.New(j.Task.DeniedNetworks, j.Task.AllowedNetworks)
	if err != nil {
		return nil, fmt.Errorf("reading where the source may be: %w", err)
	}
	patience := responseTimeout
	if stall := j.Stall(); stall > 0 {
		patience = stall
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, Control: guard.Control}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   tlsTimeout,
		ResponseHeaderTimeout: patience,
		// The engine decompresses after calculating the checksum.
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
		ReadBufferSize:     64 << 10,

		MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// Credentials returns the name and password of the job, both empty without any.
func Credentials(j *job.Job) (user, password string, err error) {
	if !j.Task.Credentials {
		return "", "", nil
	}
	for file, value := range map[string]*string{"accessKeyId": &user, "secretKey": &password} {
		data, err := os.ReadFile(filepath.Join(j.Places.Credentials, file))
		if err != nil {
			return "", "", job.Faultf(transfer.ReasonSourceRefused, "the source's Secret has no %s: %w", file, err)
		}
		*value = strings.TrimSpace(string(data))
	}
	return user, password, nil
}

func readAccess(j *job.Job) (access, error) {
	a := access{headers: http.Header{}}
	var err error
	if a.user, a.password, err = Credentials(j); err != nil {
		return a, err
	}
	for _, line := range j.Task.Headers {
		if err := a.add(line); err != nil {
			return a, err
		}
	}
	if !j.Task.SecretHeaders {
		return a, nil
	}
	return a, eachFile(j.Places.Headers, func(data []byte) error { return a.add(string(data)) })
}

func (a *access) add(line string) error {
	name, value, found := strings.Cut(strings.TrimSpace(line), ":")
	if !found || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n") {
		return job.Faultf(transfer.ReasonSourceRefused, "an extra header is not of the form 'Name: value'")
	}
	a.headers.Add(name, strings.TrimSpace(value))
	return nil
}

func (a *access) put(request *http.Request) {
	for name, values := range a.headers {
		request.Header[name] = values
	}
	if host := a.headers.Get("Host"); host != "" {
		request.Host = host
	}
	if a.user != "" {
		request.SetBasicAuth(a.user, a.password)
	}
}

// redirect permits a redirect, without the credentials and headers for the first server.
func (a *access) redirect(request *http.Request, via []*http.Request) error {
	// Without state between requests, a repeated address is redirected in the same way again.
	if slices.ContainsFunc(via, func(before *http.Request) bool { return before.URL.String() == request.URL.String() }) {
		return errors.New("it redirects in a circle")
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	if request.URL.Scheme != "http" && request.URL.Scheme != "https" {
		return fmt.Errorf("it redirects to an address of kind %q", request.URL.Scheme)
	}
	first := via[0].URL
	if request.URL.Host == first.Host && (request.URL.Scheme == first.Scheme || request.URL.Scheme == "https") {
		return nil
	}
	for name := range a.headers {
		request.Header.Del(name)
	}
	request.Header.Del("Authorization")
	request.Header.Del("Cookie")
	return nil
}

func readRoots(j *job.Job) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !j.Task.CA {
		return roots, nil
	}
	found := false
	err = eachFile(j.Places.CA, func(data []byte) error {
		found = roots.AppendCertsFromPEM(data) || found
		return nil
	})
	if err == nil && !found {
		err = job.Faultf(transfer.ReasonUntrusted, "the source's ConfigMap has no certificate in PEM form")
	}
	return roots, err
}

// eachFile skips folders that begin with "..": in Secrets and ConfigMaps, the files are links to files in those.
func eachFile(dir string, read func([]byte) error) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading what the task needs: %w", err)
		}
		if strings.HasPrefix(entry.Name(), "..") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading what the task needs: %w", err)
		}
		return read(data)
	})
}
