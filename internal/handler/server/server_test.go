package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/greeting"
	"drydock.dev/drydock/internal/handler/stream"
)

type recorder struct {
	done []string
	// fail is every verb's error.
	fail error
	// leaves means that the guest goes to another node while it is asked; left, that it has.
	leaves, left bool
	// dialed are the guest's ends of the streams.
	dialed chan net.Conn
}

func (m *recorder) do(what string) error {
	m.done = append(m.done, what)
	m.left = m.leaves
	return m.fail
}

func (m *recorder) Pause(context.Context) error      { return m.do("pause") }
func (m *recorder) Unpause(context.Context) error    { return m.do("unpause") }
func (m *recorder) SoftReboot(context.Context) error { return m.do("softreboot") }
func (m *recorder) Reset(context.Context) error      { return m.do("reset") }
func (m *recorder) ConsoleKey() string               { return "key" }

func (m *recorder) Quiesce(_ context.Context, q launch.Quiesce) (launch.Hold, error) {
	return launch.Hold{Token: "t", Holder: q.Holder}, m.do(fmt.Sprintf("quiesce %d %v", q.Milliseconds, q.AgentOnly))
}

func (m *recorder) Held(_ context.Context, asked launch.Held) (launch.Hold, error) {
	return launch.Hold{Token: "t"}, m.do(fmt.Sprintf("held %v", asked.Verify))
}

func (m *recorder) Release(_ context.Context, r launch.Release) (launch.Hold, error) {
	return launch.Hold{}, m.do("release " + r.Holder + " " + r.Token)
}

func (m *recorder) GuestOSInfo(context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	return v1.VirtualMachineInstanceGuestAgentInfo{Hostname: "guest"}, m.do("guestosinfo")
}

func (m *recorder) UserList(context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	return v1.VirtualMachineInstanceGuestOSUserList{Items: []v1.VirtualMachineInstanceGuestOSUser{{UserName: "root"}}}, m.do("userlist")
}

func (m *recorder) FilesystemList(context.Context) (v1.VirtualMachineInstanceFileSystemList, error) {
	return v1.VirtualMachineInstanceFileSystemList{Items: []v1.VirtualMachineInstanceFileSystem{{DiskName: "vda"}}}, m.do("filesystemlist")
}

func (m *recorder) dial(what string) (net.Conn, error) {
	if err := m.do(what); err != nil {
		return nil, err
	}
	ours, guests := net.Pipe()
	m.dialed <- guests
	return ours, nil
}

func (m *recorder) DialSerial(context.Context) (net.Conn, error) { return m.dial("serial") }
func (m *recorder) DialVNC(context.Context) (net.Conn, error)    { return m.dial("vnc") }
func (m *recorder) DialPort(_ context.Context, protocol string, port int) (net.Conn, error) {
	return m.dial(fmt.Sprintf("%s/%d", protocol, port))
}

type one struct{ *recorder }

func (o one) Lookup(namespace, name string, uid types.UID) (Machine, error) {
	if namespace != "ns" || name != "vm" || uid != "u1" || o.left {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachineinstances"}, name)
	}
	return o.recorder, nil
}

func newServer(t *testing.T, m *recorder) *httptest.Server {
	t.Helper()
	m.dialed = make(chan net.Conn, 10)
	consoles := stream.NewConsoles()
	s := httptest.NewServer(New(one{m}, consoles, &tls.Config{}, testr.New(t)).Handler())
	t.Cleanup(func() {
		s.Close()
		consoles.Close()
	})
	return s
}

func call(t *testing.T, s *httptest.Server, method, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestVerbs(t *testing.T) {
	for _, c := range []struct {
		method string
		verb   nodeapi.Verb
		answer string
	}{
		{http.MethodPut, nodeapi.Pause, ""},
		{http.MethodPut, nodeapi.Unpause, ""},
		{http.MethodPut, nodeapi.SoftReboot, ""},
		{http.MethodPut, nodeapi.Reset, ""},
		{http.MethodGet, nodeapi.GuestOSInfo, `{"hostname":"guest","os":{},"fsInfo":{"disks":null}}`},
		{http.MethodGet, nodeapi.UserList, `{"metadata":{},"items":[{"userName":"root"}]}`},
		{http.MethodGet, nodeapi.FilesystemList, `{"metadata":{},"items":[{"diskName":"vda","mountPoint":"","fileSystemType":"","usedBytes":0,"totalBytes":0}]}`},
	} {
		m := &recorder{}
		code, body := call(t, newServer(t, m), c.method, nodeapi.Path("ns", "vm", "u1", c.verb).String())
		if code != http.StatusOK || body != c.answer {
			t.Errorf("%s: %d %s, want 200 %s", c.verb, code, body, c.answer)
		}
		if strings.Join(m.done, ",") != string(c.verb) {
			t.Errorf("%s did %v", c.verb, m.done)
		}
	}
}

// TestAGuestThatIsNotHereIsToldFromARefusal: virt-api retries only after the former.
func TestAGuestThatIsNotHereIsToldFromARefusal(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "vm", errors.New("paused"))
	for name, c := range map[string]struct {
		method, uid string
		verb        nodeapi.Verb
		fail        error
		leaves      bool
		want        string
	}{
		"a refusal":                              {http.MethodPut, "u1", nodeapi.Pause, conflict, false, ""},
		"no guest":                               {http.MethodPut, "u2", nodeapi.Pause, nil, false, "true"},
		"a guest that goes while it refuses":     {http.MethodPut, "u1", nodeapi.Pause, conflict, true, "true"},
		"one that goes while it may have obeyed": {http.MethodPut, "u1", nodeapi.Reset, errors.New("no answer"), true, ""},
		"one that goes while it is asked":        {http.MethodGet, "u1", nodeapi.GuestOSInfo, errors.New("no answer"), true, "true"},
	} {
		s := newServer(t, &recorder{fail: c.fail, leaves: c.leaves})
		request, err := http.NewRequestWithContext(t.Context(), c.method, s.URL+nodeapi.Path("ns", "vm", c.uid, c.verb).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get(nodeapi.AwayHeader); got != c.want || response.StatusCode < 400 {
			t.Errorf("%s: %s, away: %q, want %q", name, response.Status, got, c.want)
		}
	}
}

func TestTheGuestIsHeldStill(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		verb   nodeapi.Verb
		query  string
		done   string
		code   int
		answer string
	}{
		"held":                  {http.MethodPut, nodeapi.Quiesce, "&holder=snap&timeout=2s", "quiesce 2000 false", 200, `{"token":"t","holder":"snap"}`},
		"by the agent alone":    {http.MethodPut, nodeapi.Quiesce, "&holder=user&timeout=1m&agent=true", "quiesce 60000 true", 200, `{"token":"t","holder":"user"}`},
		"for nobody":            {http.MethodPut, nodeapi.Quiesce, "&timeout=2s", "", 400, ""},
		"for somebody too long": {http.MethodPut, nodeapi.Quiesce, "&timeout=2s&holder=" + strings.Repeat("x", 65), "", 400, ""},
		"without an end":        {http.MethodPut, nodeapi.Quiesce, "&holder=snap", "", 400, ""},
		"for no time":           {http.MethodPut, nodeapi.Quiesce, "&holder=snap&timeout=0s", "", 400, ""},
		"what holds it":         {http.MethodGet, nodeapi.Quiesce, "", "held false", 200, `{"token":"t"}`},
		"what really holds it":  {http.MethodGet, nodeapi.Quiesce, "&verify=true", "held true", 200, `{"token":"t"}`},
		"released":              {http.MethodPut, nodeapi.Release, "&holder=snap&token=t", "release snap t", 200, `{}`},
		"released for nobody":   {http.MethodPut, nodeapi.Release, "", "", 400, ""},
	} {
		m := &recorder{}
		code, body := call(t, newServer(t, m), c.method, nodeapi.Path("ns", "vm", "u1", c.verb).String()+c.query)
		if code != c.code || strings.Join(m.done, ",") != c.done || c.code == 200 && body != c.answer {
			t.Errorf("%s: %d %s, done %q", name, code, body, m.done)
		}
	}
}

func TestErrorsAreStatuses(t *testing.T) {
	resource := schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachineinstances"}
	path := func(verb nodeapi.Verb, extra ...string) string {
		return nodeapi.Path("ns", "vm", "u1", verb, extra...).String()
	}
	for name, c := range map[string]struct {
		method, path string
		fail         error
		code         int
		reason       metav1.StatusReason
		message      string
	}{
		"a VMI of the same name that came later": {
			http.MethodPut, nodeapi.Path("ns", "vm", "u2", nodeapi.Pause).String(), nil,
			404, metav1.StatusReasonNotFound, `virtualmachineinstances.kubevirt.io "vm" not found`,
		},
		"no UID": {
			http.MethodPut, "/v1/namespaces/ns/virtualmachineinstances/vm/pause", nil,
			400, metav1.StatusReasonBadRequest, "the query parameter uid is missing: it must be the VMI's UID",
		},
		"an error with a status": {
			http.MethodPut, path(nodeapi.Pause), fmt.Errorf("pausing: %w", apierrors.NewConflict(resource, "vm", errors.New("VMI is paused already"))),
			409, metav1.StatusReasonConflict, `Operation cannot be fulfilled on virtualmachineinstances.kubevirt.io "vm": VMI is paused already`,
		},
		"an error without one": {
			http.MethodGet, path(nodeapi.GuestOSInfo), errors.New("the monitor is gone"),
			500, metav1.StatusReasonInternalError, "Internal error occurred: the monitor is gone",
		},
		"a stream that can't be opened": {
			http.MethodGet, path(nodeapi.VNC), apierrors.NewBadRequest("No graphics devices are present."),
			400, metav1.StatusReasonBadRequest, "No graphics devices are present.",
		},
		"a console that can't be opened": {
			http.MethodGet, path(nodeapi.Console), apierrors.NewBadRequest("No serial consoles are present."),
			400, metav1.StatusReasonBadRequest, "No serial consoles are present.",
		},
		"a stream without a WebSocket": {
			http.MethodGet, path(nodeapi.VNC), nil, 400, metav1.StatusReasonBadRequest,
			"opening the stream: websocket: the client is not using the websocket protocol: 'upgrade' token not found in 'Connection' header",
		},
		"a port that is none": {
			http.MethodGet, path(nodeapi.PortForward, "70000"), nil,
			400, metav1.StatusReasonBadRequest, `port "70000": must be a number from 1 to 65535`,
		},
		"a protocol that is none": {
			http.MethodGet, path(nodeapi.PortForward, "80", "sctp"), nil,
			400, metav1.StatusReasonBadRequest, `protocol "sctp": must be tcp or udp`,
		},
		"a route that is none": {
			http.MethodGet, "/v1/namespaces/ns/pods", nil,
			404, metav1.StatusReasonNotFound, "virt-handler has no route GET /v1/namespaces/ns/pods",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := call(t, newServer(t, &recorder{fail: c.fail}), c.method, c.path)
			var status metav1.Status
			if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatalf("the answer %q is no JSON: %v", body, err)
			}
			if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure {
				t.Errorf("the answer is no Status: %s", body)
			}
			if code != c.code || int(status.Code) != c.code || status.Reason != c.reason || status.Message != c.message {
				t.Errorf("got %d %s %q, want %d %s %q", code, status.Reason, status.Message, c.code, c.reason, c.message)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	for _, c := range []struct {
		verb   nodeapi.Verb
		extra  []string
		dialed string
	}{
		{nodeapi.Console, nil, "serial"},
		{nodeapi.VNC, nil, "vnc"},
		{nodeapi.PortForward, []string{"8080"}, "tcp/8080"},
		{nodeapi.PortForward, []string{"8080", "tcp"}, "tcp/8080"},
		{nodeapi.PortForward, []string{"53", "udp"}, "udp/53"},
	} {
		m := &recorder{}
		s := newServer(t, m)
		url := "ws" + strings.TrimPrefix(s.URL, "http") + nodeapi.Path("ns", "vm", "u1", c.verb, c.extra...).String()
		dialer := websocket.Dialer{Subprotocols: []string{nodeapi.StreamProtocol}}
		ws, response, err := dialer.Dial(url, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.verb, err)
		}
		_ = response.Body.Close()
		guest := <-m.dialed
		if strings.Join(m.done, ",") != c.dialed {
			t.Errorf("%s %v dialed %v, want %s", c.verb, c.extra, m.done, c.dialed)
		}
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte("ping")); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4)
		if _, err := io.ReadFull(guest, buffer); err != nil || string(buffer) != "ping" {
			t.Errorf("%s: the guest hears %q, %v", c.verb, buffer, err)
		}
		if _, err := guest.Write([]byte("pong")); err != nil {
			t.Fatal(err)
		}
		if kind, data, err := ws.ReadMessage(); err != nil || kind != websocket.BinaryMessage || string(data) != "pong" {
			t.Errorf("%s: the client hears %q (kind %d), %v", c.verb, data, kind, err)
		}
		_ = guest.Close()
		if _, _, err := ws.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			t.Errorf("%s: the stream ends with %v", c.verb, err)
		}
		_ = ws.Close()
	}
}

func TestAMachineHasOnlySoManyStreams(t *testing.T) {
	for verb, most := range maxStreams {
		m := &recorder{}
		s := newServer(t, m)
		m.dialed = make(chan net.Conn, most+2)
		path := nodeapi.Path("ns", "vm", "u1", verb)
		if verb == nodeapi.PortForward {
			path = nodeapi.Path("ns", "vm", "u1", verb, "80")
		}
		url := "ws" + strings.TrimPrefix(s.URL, "http") + path.String()
		open := func() (*websocket.Conn, int, string) {
			ws, response, err := websocket.DefaultDialer.Dial(url, nil)
			if err == nil {
				return ws, response.StatusCode, ""
			}
			if response == nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			return nil, response.StatusCode, string(body)
		}
		var all []*websocket.Conn
		for range most {
			ws, code, body := open()
			if ws == nil {
				t.Fatalf("%s: stream %d of %d is answered %d %s", verb, len(all)+1, most, code, body)
			}
			all = append(all, ws)
		}
		ws, code, body := open()
		if ws != nil || code != http.StatusTooManyRequests || !strings.Contains(body, "close one of them") {
			t.Errorf("%s: one stream more is answered %d %s", verb, code, body)
		}
		_ = all[0].Close()
		for deadline := time.Now().Add(4 * time.Minute); ws == nil; {
			if ws, code, body = open(); ws == nil && time.Now().After(deadline) {
				t.Fatalf("%s: after one has ended, the next is answered %d %s", verb, code, body)
			}
		}
		for _, ws := range append(all, ws) {
			_ = ws.Close()
		}
	}
}

func TestASessionIsPreservedWhenTheNextViewerAsksFor(t *testing.T) {
	m := &recorder{dialed: make(chan net.Conn, 4)}
	s := newServer(t, m)
	url := "ws" + strings.TrimPrefix(s.URL, "http") + nodeapi.Path("ns", "vm", "u1", nodeapi.VNC).String()
	open := func(query string) (*websocket.Conn, string) {
		ws, response, err := websocket.DefaultDialer.Dial(url+query, nil)
		if err == nil {
			t.Cleanup(func() { _ = ws.Close() })
			return ws, ""
		}
		if response == nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		return nil, response.Status + " " + string(body)
	}
	const preserve = "&" + nodeapi.PreserveSession + "=true"
	if ws, refused := open(preserve); ws == nil {
		t.Fatalf("the first viewer: %s", refused)
	}
	if ws, refused := open(preserve); ws != nil || !strings.HasPrefix(refused, "409") || !strings.Contains(refused, "a session of vnc is active") {
		t.Errorf("a viewer that would disturb the first: %s", refused)
	}
	if ws, refused := open(""); ws == nil {
		t.Errorf("a viewer that shares: %s", refused)
	}
}

// identity is a self-signed certificate.
func identity(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}
}

func pool(certificate tls.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(certificate.Leaf)
	return p
}

func serve(t *testing.T, s *Server) (address string, cancel func(), ended <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan error, 1)
	go func() { ends <- s.Serve(ctx, listener) }()
	return listener.Addr().String(), cancel, ends
}

func TestOnlyVirtAPIIsServedAndStreamsEndWithTheServer(t *testing.T) {
	handler, api, stranger := identity(t), identity(t), identity(t)
	m := &recorder{dialed: make(chan net.Conn, 1)}
	s := New(one{m}, stream.NewConsoles(), &tls.Config{
		Certificates: []tls.Certificate{handler}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(api),
		NextProtos: []string{"h2", "http/1.1"},
	}, testr.New(t))
	server, cancel, ended := serve(t, s)

	address := server + nodeapi.Path("ns", "vm", "u1", nodeapi.VNC).String()
	open := func(certificates ...tls.Certificate) (*websocket.Conn, error) {
		dialer := websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool(handler), Certificates: certificates}}
		ws, response, err := dialer.Dial("wss://"+address, nil)
		if err == nil {
			_ = response.Body.Close()
		}
		return ws, err
	}
	for name, certificates := range map[string][]tls.Certificate{"nobody": nil, "a stranger": {stranger}} {
		if _, err := open(certificates...); err == nil {
			t.Errorf("%s is served", name)
		}
	}
	ws, err := open(api)
	if err != nil {
		t.Fatalf("virt-api is refused: %v", err)
	}
	defer func() { _ = ws.Close() }()
	cancel()
	if _, _, err := ws.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ends with %v", err)
	}
}

// Connections without a certificate must have bounded room, must not exclude virt-api, and must leave nothing behind.
func TestConnectionsThatShowNoCertificateAreBounded(t *testing.T) {
	handler, api := identity(t), identity(t)
	s := New(one{&recorder{}}, stream.NewConsoles(), &tls.Config{
		Certificates: []tls.Certificate{handler}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(api),
	}, testr.New(t))
	server, cancel, ended := serve(t, s)
	var silent []net.Conn
	for range 2 * greeting.MaxOpen {
		conn, err := net.Dial("tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	// The first of them must be closed when the room is full.
	if _, err := silent[0].Read(make([]byte, 1)); err == nil {
		t.Error("a connection that shows no certificate is answered")
	}
	if n := s.callers.rooms.Open(); n == 0 || n > greeting.MaxOpen {
		t.Errorf("%d connections are without a certificate, want some and %d at most", n, greeting.MaxOpen)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(handler), Certificates: []tls.Certificate{api}}}}
	response, err := client.Get("https://" + server + "/")
	if err != nil {
		t.Fatalf("virt-api is kept out: %v", err)
	}
	_ = response.Body.Close()
	for _, conn := range silent {
		_ = conn.Close()
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the server ends with %v", err)
	}
	if n := s.callers.rooms.Open(); n != 0 {
		t.Errorf("%d connections are remembered", n)
	}
}
