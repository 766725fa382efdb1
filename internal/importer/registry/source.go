package registry

import (
	"archive/tar"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/reach"
	"drydock.dev/drydock/internal/importer/web"
)

// stall is how long a registry may send no byte of the data after the disk.
const stall = time.Minute

// New returns the source of a job.
func New(j *job.Job) (job.Source, error) {
	switch scheme, rest, _ := strings.Cut(j.Task.URL, "://"); scheme {
	case "docker":
		return newRemote(j, rest)
	case "file":
		return &mounted{dir: j.Places.SourceDir}, nil
	}
	return nil, job.Faultf(transfer.ReasonSourceRefused,
		"the source's URL %q is not that of a container image: it must begin with docker://", j.Task.URL)
}

type image struct {
	ref     name.Reference
	options []remote.Option
	// most limits the bytes that are searched for the disk.
	most int64
	now  *layer
}

func newRemote(j *job.Job, reference string) (*image, error) {
	var options []name.Option
	if j.Task.Insecure {
		options = append(options, name.Insecure)
	}
	ref, err := name.ParseReference(reference, options...)
	if err != nil {
		return nil, job.Faultf(transfer.ReasonSourceRefused, "the source's URL does not name a container image: %w", err)
	}
	user, password, err := web.Credentials(j)
	if err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if user != "" {
		auth = &authn.Basic{Username: user, Password: password}
	}
	caller, err := web.NewTransport(j)
	if err != nil {
		return nil, err
	}
	if j.Task.Insecure {
		caller.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} // as the cluster's configuration says of this registry
	}
	return &image{ref: ref, most: maxScan + j.Task.Size, options: []remote.Option{
		remote.WithAuth(auth), remote.WithTransport(caller),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		// The worker retries itself and shows that in its progress.
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}),
	}}, nil
}

// Open ignores the offset: a layer is read from its beginning.
func (i *image) Open(ctx context.Context, _ int64) (*job.Stream, error) {
	// The rest of the layer is read after the engine has the disk and has ended its context.
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	stream, err := i.find(own)
	if err != nil {
		stop()
		cancel(nil)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, i.explain(err)
	}
	stream.Body = &body{layer: i.now, explain: i.explain, stop: stop}
	i.now.cancel = cancel
	return stream, nil
}

func (i *image) find(ctx context.Context) (*job.Stream, error) {
	pulled, err := remote.Image(i.ref, append(i.options, remote.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}
	layers, err := pulled.Layers()
	if err != nil {
		return nil, err
	}
	gone := removed{}
	for n := len(layers) - 1; n >= 0; n-- {
		opened, err := openLayer(ctx, layers[n], i.most)
		if err != nil {
			return nil, err
		}
		size, err := opened.seek(gone)
		if err != nil {
			return nil, errors.Join(err, opened.close())
		}
		if size < 0 {
			if err := opened.close(); err != nil {
				return nil, err
			}
			continue
		}
		i.now = opened
		return &job.Stream{Size: size, Version: opened.version, Rewindable: true}, nil
	}
	return nil, job.Faultf(transfer.ReasonInvalidImage,
		"the container image %s has no disk: there must be one file in its folder /disk", i.ref)
}

// Verify fails for another disk in the rest of the layer, or a wrong digest.
func (i *image) Verify(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { i.now.cancel(context.Cause(ctx)) })
	defer stop()
	defer i.now.cancel(nil)
	return i.explain(errors.Join(i.now.finish(), i.now.close()))
}

func (i *image) explain(err error) error {
	var fault *job.Fault
	var answer *transport.Error
	var authority x509.UnknownAuthorityError
	var denied *reach.Refused
	switch {
	case err == nil, errors.As(err, &fault), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &denied):
		return job.Faultf(transfer.ReasonSourceRefused, "the registry %s can't be a source: %w", i.ref.Context().RegistryStr(), denied)
	case errors.As(err, &authority):
		// This must precede the registry's answer: a registry on the same machine is also tried by plain HTTP.
		return i.unreachable(authority)
	case errors.As(err, &answer):
		return i.refused(answer)
	case strings.Contains(err.Error(), "error verifying size"):
		return job.Faultf(transfer.ReasonCut, "the registry broke off in the container image %s: %w", i.ref, err)
	case strings.Contains(err.Error(), "error verifying"):
		return job.Faultf(transfer.ReasonChecksumMismatch,
			"what the registry sent of the container image %s is damaged: %w", i.ref, err)
	case errors.Is(err, tar.ErrHeader):
		return job.Faultf(transfer.ReasonInvalidImage, "the container image %s has a layer that is damaged: %w", i.ref, err)
	case strings.Contains(err.Error(), "no child with platform"):
		return job.Faultf(transfer.ReasonInvalidImage,
			"the container image %s is not made for linux/%s", i.ref, runtime.GOARCH)
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		return i.unreachable(err)
	}
	return job.Faultf(transfer.ReasonCut, "reading the container image %s: %w", i.ref, err)
}

func (i *image) unreachable(err error) error {
	return web.Unreachable(&url.URL{Host: i.ref.Context().RegistryStr()}, err)
}

func (i *image) refused(answer *transport.Error) error {
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return job.Faultf(transfer.ReasonSourceRefused,
			"the registry does not let the container image %s be read: check its name and the source's secretRef (%d %s)",
			i.ref, code, http.StatusText(code))
	case code == http.StatusNotFound:
		return job.Faultf(transfer.ReasonSourceRefused, "the registry has no container image %s", i.ref)
	case code >= 500 || code == http.StatusTooManyRequests:
		return job.Faultf(transfer.ReasonSourceUnreachable, "the registry of the container image %s answers %d %s",
			i.ref, code, http.StatusText(code))
	}
	return job.Faultf(transfer.ReasonSourceRefused, "the registry does not give the container image %s: %w", i.ref, answer)
}
