package imageupload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// Paths of the upload proxy. The asynchronous one responds as soon as everything is sent; not every proxy has
// it.
const (
	syncPath  = "/v1beta1/upload"
	asyncPath = "/v1beta1/upload-async"
)

// answerPatience is how long the image waits for the proxy to ask for it. The proxy waits 30 seconds for its worker, and
// its words are lost if the image is under way when it refuses the upload.
const answerPatience = 40 * time.Second

// pause before a retry of an upload.
const pause = 2 * time.Second

type upload struct {
	*options
	env       *env.Env
	client    *client.Client
	namespace string
	proxy     *url.URL
	http      *http.Client
	image     *os.File
	length    int64
}

func run(ctx context.Context, e *env.Env, o *options) error {
	u := &upload{options: o, env: e}
	if err := u.open(); err != nil {
		return err
	}
	defer u.image.Close()
	var err error
	if u.client, u.namespace, err = e.Connect(); err != nil {
		return err
	}
	if err := u.findProxy(ctx); err != nil {
		return err
	}
	if err := u.prepare(ctx); err != nil {
		return err
	}
	if err := u.awaitReady(ctx); err != nil {
		return err
	}
	before, err := u.read(ctx)
	if err != nil {
		return err
	}
	if err := u.sendUntilDone(ctx); err != nil {
		return fmt.Errorf("uploading %s to %s %s/%s: %w", u.file(), u.kind(), u.namespace, u.name, err)
	}
	u.say("Uploading data completed successfully, waiting for processing to complete, you can hit ctrl-c without interrupting the progress")
	if err := u.awaitDone(ctx, before.restarts()); err != nil {
		return err
	}
	u.say("Processing completed successfully")
	if err := u.point(ctx); err != nil {
		return err
	}
	u.say("Uploading %s completed successfully", u.file())
	return nil
}

func (u *upload) say(format string, args ...any) { fmt.Fprintf(u.env.Out, format+"\n", args...) }

// The image is opened before anything is created in the cluster.
func (u *upload) open() error {
	image, err := os.Open(u.file())
	if err != nil {
		return fmt.Errorf("opening the image: %w", err)
	}
	info, err := image.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no file", u.file())
	case info.Size() == 0:
		err = fmt.Errorf("%s is empty", u.file())
	}
	if err != nil {
		_ = image.Close()
		return fmt.Errorf("opening the image: %w", err)
	}
	u.image, u.length = image, info.Size()
	return nil
}

func (u *upload) findProxy(ctx context.Context) error {
	address, authority := u.url, ""
	if config, err := u.client.CDIConfig(ctx); err == nil {
		if address == "" && config.Status.UploadProxyURL != nil {
			address = *config.Status.UploadProxyURL
		}
		if config.Status.UploadProxyCA != nil {
			authority = *config.Status.UploadProxyCA
		}
	}
	if address == "" {
		return fmt.Errorf("uploadproxy URL not found: the cluster names none; give it with --uploadproxy-url")
	}
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	proxy, err := url.Parse(address)
	if err != nil || proxy.Host == "" || proxy.Scheme != "https" && proxy.Scheme != "http" {
		return fmt.Errorf("the upload proxy's address %q is no URL", address)
	}
	u.proxy = proxy
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM([]byte(authority))
	u.http = &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots,
			InsecureSkipVerify: u.insecure}, // the user requests it with --insecure
		TLSHandshakeTimeout:   15 * time.Second,
		ExpectContinueTimeout: answerPatience,
	}}
	return nil
}

// refusal is a response of the proxy that a retry will not change.
type refusal struct{ words string }

func (r *refusal) Error() string { return r.words }

// sendUntilDone sends the image, with retries.
func (u *upload) sendUntilDone(ctx context.Context) error {
	u.say("Uploading data to %s", u.proxy)
	for left := u.retries; ; left-- {
		err := u.sendOnce(ctx)
		var final *refusal
		if err == nil || errors.As(err, &final) || left == 0 || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(u.env.Err, "The upload failed and is tried again: %v\n", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Tokens are short-lived, so each attempt gets a new one.
func (u *upload) sendOnce(ctx context.Context) error {
	token, err := u.client.UploadToken(ctx, u.namespace, u.name)
	if err != nil {
		return &refusal{fmt.Sprintf("asking for an upload token: %v", err)}
	}
	path := asyncPath
	if !u.has(ctx, asyncPath, token) {
		path = syncPath
	}
	if _, err := u.image.Seek(0, io.SeekStart); err != nil {
		return &refusal{fmt.Sprintf("reading the image: %v", err)}
	}
	body, finish := u.progress()
	defer finish()
	request, err := u.request(ctx, http.MethodPost, path, token, body)
	if err != nil {
		return err
	}
	request.ContentLength = u.length
	request.Header.Set("Content-Type", "application/octet-stream")
	// The proxy can refuse the request before the image is sent.
	request.Header.Set("Expect", "100-continue")
	response, err := u.http.Do(request)
	if err != nil {
		var authority x509.UnknownAuthorityError
		var hostname x509.HostnameError
		if errors.As(err, &authority) || errors.As(err, &hostname) {
			return &refusal{fmt.Sprintf("%v; --insecure trusts the upload proxy nevertheless", err)}
		}
		return err
	}
	defer response.Body.Close()
	// An error about the image or the volume is final; one about the connection may not be.
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10)) // the status code is enough
	words := strings.TrimSpace(string(text))
	if words == "" {
		words = "the upload proxy answers " + response.Status
	}
	again := response.StatusCode >= 500 && response.StatusCode != http.StatusInsufficientStorage
	if again || response.StatusCode == http.StatusTooManyRequests {
		return errors.New(words)
	}
	return &refusal{words}
}

func (u *upload) request(ctx context.Context, method, path, token string, body io.Reader) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, u.proxy.JoinPath(path).String(), body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

func (u *upload) has(ctx context.Context, path, token string) bool {
	request, err := u.request(ctx, http.MethodHead, path, token, nil)
	if err != nil {
		return false
	}
	response, err := u.http.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (u *upload) progress() (body io.Reader, finish func()) {
	// The client closes the body, but a retry needs the image.
	body = io.NopCloser(u.image)
	if _, isTerminal := u.env.OutTerminal(); !isTerminal {
		return body, func() {}
	}
	bar := pb.Full.New(0).SetTotal(u.length).Set(pb.Bytes, true).SetWriter(u.env.Out).Start()
	return io.NopCloser(bar.NewProxyReader(u.image)), func() { bar.Finish() }
}

// point creates or updates the DataSource.
func (u *upload) point(ctx context.Context) error {
	if !u.dataSource {
		return nil
	}
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Name: u.name, Namespace: u.namespace, Labels: u.labels.set()}}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: u.namespace, Name: u.name}
	if err := u.client.ApplyDataSource(ctx, source); err != nil {
		return fmt.Errorf("making DataSource %s/%s: %w", u.namespace, u.name, err)
	}
	u.say("DataSource %s/%s created", u.namespace, u.name)
	return nil
}
