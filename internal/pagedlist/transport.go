package pagedlist

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

var errTooLarge = errors.New("the page of a list has too many bytes")

// roomKey is a context's key of the bytes that the answer may have, an int64.
type roomKey struct{}

// Bound bounds the pages of lists. It must be called before a client is made of the configuration.
func Bound(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
}

type transport struct{ next http.RoundTripper }

// RoundTrip reads the whole answer: client-go would log an error about a body that ends early.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	room, isBounded := request.Context().Value(roomKey{}).(int64)
	if err != nil || !isBounded {
		return response, err
	}
	var body bytes.Buffer
	_, err = body.ReadFrom(io.LimitReader(response.Body, room+1))
	_ = response.Body.Close() // what has arrived is enough
	if err != nil {
		return nil, err
	}
	if int64(body.Len()) > room {
		return nil, errTooLarge
	}
	response.Body = io.NopCloser(&body)
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
