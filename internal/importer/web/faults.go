package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/reach"
)

// Unreachable returns the Fault of a request without a response.
func Unreachable(at *url.URL, err error) error {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // the address may hold a password
	}
	var timeout net.Error
	var denied *reach.Refused
	switch {
	case errors.As(err, &denied):
		return job.Faultf(transfer.ReasonSourceRefused, "%s can't be a source: %w", at.Host, denied)
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &verification), errors.As(err, &authority), errors.As(err, &hostname):
		return job.Faultf(transfer.ReasonUntrusted, "the certificate of %s is not trusted: name its authority in the source's certConfigMap (%w)", at.Host, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return job.Faultf(transfer.ReasonSourceUnreachable, "%s does not answer in time: %w", at.Host, err)
	}
	return job.Faultf(transfer.ReasonSourceUnreachable, "%s can't be reached: %w", at.Host, err)
}

func refused(at *url.URL, response *http.Response) error {
	what := at.Host
	if response.Request != nil && response.Request.URL.Host != at.Host {
		what += ", which redirects to " + response.Request.URL.Host + ","
	}
	status := strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode)
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return job.Faultf(transfer.ReasonSourceRefused, "%s answers %s: check the credentials and whether they may read the file", what, status)
	case code == http.StatusNotFound, code == http.StatusGone:
		return job.Faultf(transfer.ReasonSourceRefused, "%s answers %s: check the path in the source's URL", what, status)
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return job.Faultf(transfer.ReasonSourceUnreachable, "%s answers %s", what, status)
	}
	return job.Faultf(transfer.ReasonSourceRefused, "%s answers %s", what, status)
}
