package subresource

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

// stream forwards a request to the guest's node: a query of the agent, or a connection that is upgraded to a
// WebSocket.
func (s *Server) stream(verb nodeapi.Verb, allowed precondition) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var extra []string
		if verb == nodeapi.PortForward {
			var err error
			if extra, err = target(r.PathValue("port"), r.PathValue("protocol")); err != nil {
				return err
			}
		}
		vmi, err := s.instance(r, allowed)
		if err != nil {
			return err
		}
		defer s.streams.begin(verb, key(r))()
		s.pass(w, r, vmi, verb, extra...)
		return nil
	}
}

// virt-handler must not get the caller's credentials.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, vmi *v1.VirtualMachineInstance, verb nodeapi.Verb, extra ...string) {
	s.passTo(w, r, vmi, nodeapi.Path(vmi.Namespace, vmi.Name, string(vmi.UID), verb, extra...))
}

// passTo forwards to a path of virt-handler. The caller can't override its query parameters. If the node does not
// have the guest, the VMI is read again and the request repeated.
func (s *Server) passTo(w http.ResponseWriter, r *http.Request, vmi *v1.VirtualMachineInstance, destination *url.URL) {
	late := time.After(handoverPatience)
	for {
		away := s.passOnce(w, r, vmi.Status.NodeName, destination)
		if away == nil {
			return
		}
		select {
		case <-time.After(handoverPause):
		case <-late:
			answer.Error(w, away)
			return
		case <-r.Context().Done():
			answer.Error(w, away)
			return
		}
		now, err := s.instance(r, verb.Ready)
		if err != nil {
			answer.Error(w, err)
			return
		}
		if now.UID != vmi.UID {
			answer.Error(w, away)
			return
		}
		vmi = now
	}
}

// passOnce forwards to a node. If that does not have the guest, it writes no response and returns the node's error.
func (s *Server) passOnce(w http.ResponseWriter, r *http.Request, node string, destination *url.URL) error {
	to := *destination
	to.Scheme = "https"
	to.Host = net.JoinHostPort(nodecert.DNSName(node), strconv.Itoa(nodeapi.Port))
	var away error
	proxy := &httputil.ReverseProxy{
		Transport: s.transport,
		// Streams must not be buffered.
		FlushInterval: -1,
		Rewrite:       func(p *httputil.ProxyRequest) { rewrite(p.Out, &to) },
		ModifyResponse: func(response *http.Response) error {
			if response.Header.Get(nodeapi.AwayHeader) != "" {
				away = refusalOf(response)
			}
			return away
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if away == nil {
				answer.Error(w, apierrors.NewInternalError(fmt.Errorf("calling virt-handler on node %s: %w", node, err)))
			}
		},
	}
	proxy.ServeHTTP(w, r)
	return away
}

const maxRefusal = 64 << 10

func refusalOf(response *http.Response) error {
	status := metav1.Status{}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxRefusal)).Decode(&status); err != nil {
		return fmt.Errorf("reading what virt-handler has answered with %s: %w", response.Status, err)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

func rewrite(out *http.Request, destination *url.URL) {
	query := destination.Query()
	for name, values := range out.URL.Query() {
		if !query.Has(name) {
			query[name] = values
		}
	}
	out.URL = destination
	out.URL.RawQuery = query.Encode()
	out.Host = ""
	// The verb's options were for virt-api.
	out.Body, out.ContentLength = http.NoBody, 0
	out.Header.Del("Content-Type")
	for name := range out.Header {
		header := http.CanonicalHeaderKey(name)
		if header == "Authorization" || header == "Cookie" || header == "Origin" || strings.HasPrefix(header, "X-Remote-") {
			out.Header.Del(name)
		}
	}
}

const (
	// handoverPatience bounds the wait for a running guest that its node does not have: a migration hands it over, or
	// virt-handler was replaced.
	handoverPatience = 15 * time.Second
	handoverPause    = 100 * time.Millisecond
)
