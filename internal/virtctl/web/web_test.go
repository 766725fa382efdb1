package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"drydock.dev/drydock/internal/virtctl/env"
)

var testPages = fstest.MapFS{"index.html": {Data: []byte("page")}, "assets/main-1.js": {}}

// kubeconfig returns a kubeconfig for the server, with a token.
func kubeconfig(t *testing.T, server *httptest.Server) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL + "/behind", CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "users-token"}
	config.Contexts["here"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: "lab"}
	config.CurrentContext = "here"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// start runs the command and returns the address that it prints.
func start(t *testing.T, kubeconfig string) *url.URL {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &kubeconfig
	out, printed := io.Pipe()
	e := &env.Env{Out: printed, Err: io.Discard, Flags: flags, Program: "virtctl"}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, e, options{noBrowser: true}, testPages)
		_ = printed.CloseWithError(errors.Join(err, io.EOF))
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("virtctl web ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestTheConsoleHasTheRightsOfTheKubeconfig(t *testing.T) {
	got := make(chan string, 1)
	far := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization") + " " + r.Header.Get("User-Agent") + " " + r.Proto + " " + r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	far.EnableHTTP2 = true
	defer far.Close()
	address := start(t, kubeconfig(t, far))
	code, isCode := strings.CutPrefix(address.Fragment, "code=")
	if !isCode || address.Path != "/" || address.RawQuery != "" {
		t.Fatalf("the address is %s; want a code in its fragment, and nowhere else", address)
	}
	do := func(method, path, body string, headers map[string]string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+address.Port()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = address.Host
		r.Header.Set("Origin", "http://"+address.Host)
		r.Header.Set("Content-Type", "application/json")
		for key, value := range headers {
			r.Header.Set(key, value)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	begun := do("POST", "/session", `{"code":"`+code+`"}`, nil)
	text, _ := io.ReadAll(begun.Body)
	if !bytes.Contains(text, []byte(`"namespace":"lab","context":"here"`)) {
		t.Errorf("the page is told %s", text)
	}
	_, secret, _ := strings.Cut(string(text), `"secret":"`)
	secret, _, _ = strings.Cut(secret, `"`)
	cookie, _, _ := strings.Cut(begun.Header.Get("Set-Cookie"), ";")
	response := do("GET", "/api/v1/nodes", "", map[string]string{"X-Drydock-Session": secret, "Cookie": cookie, "Authorization": "Bearer pages"})
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("answered %d %s", response.StatusCode, text)
	}
	if asked, want := <-got, "Bearer users-token virtctl-web HTTP/1.1 /behind/api/v1/nodes"; asked != want {
		t.Errorf("the API server got %q; want %q", asked, want)
	}
}

func TestItListensForThisComputerOnly(t *testing.T) {
	far := httptest.NewTLSServer(http.NotFoundHandler())
	defer far.Close()
	address := start(t, kubeconfig(t, far))
	others, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		network, isNetwork := other.(*net.IPNet)
		if !isNetwork || network.IP.IsLoopback() || network.IP.IsLinkLocalUnicast() {
			continue
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(network.IP.String(), address.Port()))
		if err == nil {
			_ = conn.Close()
			t.Errorf("it listens on %s, too", network.IP)
		}
	}
}

// A browser tries either address of this computer.
func TestNobodyElseListensOnItsPort(t *testing.T) {
	far := httptest.NewTLSServer(http.NotFoundHandler())
	defer far.Close()
	foreign, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	defer foreign.Close()
	taken := foreign.Addr().(*net.TCPAddr).Port
	if got, _, err := listen(t.Context(), taken); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("it listens on %v, of which somebody else has the other: %v", got, err)
	}
	address := start(t, kubeconfig(t, far))
	for _, host := range []string{"127.0.0.1", "::1"} {
		if other, err := net.Listen("tcp", net.JoinHostPort(host, address.Port())); err == nil {
			_ = other.Close()
			t.Errorf("somebody else can listen on %s", other.Addr())
		}
	}
}

// What another user's server has left in a browser for a port belongs to that server's name.
func TestAnOriginIsOneThatNobodyHadBefore(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		o := origin(8123)
		name, isLocal := strings.CutSuffix(strings.TrimPrefix(o, "http://"), ".localhost:8123")
		if !isLocal || len(name) != 32 || strings.Trim(name, "0123456789abcdef") != "" {
			t.Errorf("%s has no name of 128 random bits", o)
		}
		if seen[o] {
			t.Errorf("%s was there before", o)
		}
		seen[o] = true
	}
}

func TestAVirtctlWithoutPagesSaysWhereTheyAre(t *testing.T) {
	far := httptest.NewTLSServer(http.NotFoundHandler())
	defer far.Close()
	file := kubeconfig(t, far)
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &file
	var out bytes.Buffer
	err := run(t.Context(), &env.Env{Out: &out, Err: &out, Flags: flags}, options{noBrowser: true}, fstest.MapFS{})
	if err == nil || !strings.Contains(err.Error(), "`make web`") || out.Len() > 0 {
		t.Errorf("got %v, printed %q", err, out.String())
	}
}

func TestWhatOpensABrowser(t *testing.T) {
	found := func(string) (string, error) { return "/usr/bin/xdg-open", nil }
	missing := func(string) (string, error) { return "", errors.New("not found") }
	screen := func(name string) string { return map[string]string{"DISPLAY": ":0"}[name] }
	none := func(string) string { return "" }
	for name, test := range map[string]struct {
		system   string
		variable func(string) string
		find     func(string) (string, error)
		want     string
	}{
		"Linux":                  {"linux", screen, found, "/usr/bin/xdg-open"},
		"Linux without a screen": {"linux", none, found, ""},
		"Linux without xdg-open": {"linux", screen, missing, ""},
		"macOS":                  {"darwin", none, missing, "open"},
		"Windows":                {"windows", none, missing, "rundll32 url.dll,FileProtocolHandler"},
	} {
		got, err := opener(test.system, test.variable, test.find)
		if strings.Join(got, " ") != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, test.want)
		}
	}
}

// All users of a computer see the arguments of its programs.
// playBrowser puts a program in the place of the browser, which writes its arguments to the FIFO seen.
func playBrowser(t *testing.T) (seen string) {
	t.Helper()
	folder := t.TempDir()
	seen = filepath.Join(folder, "seen")
	if err := syscall.Mkfifo(seen, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" > %s\n", seen)
	if err := os.WriteFile(filepath.Join(folder, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	t.Setenv("XDG_RUNTIME_DIR", folder)
	return seen
}

func TestTheAddressIsNoArgumentOfTheBrowser(t *testing.T) {
	const address = "http://0123.localhost:8123/#code=secret"
	seen := playBrowser(t)
	var said bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	forget, err := openBrowser(ctx, &env.Env{Err: &said}, address)
	if err != nil {
		t.Fatal(err)
	}
	arguments, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	file := strings.TrimSpace(string(arguments))
	page, err := os.ReadFile(file)
	if err != nil || strings.Contains(file, "secret") || !strings.Contains(string(page), `content="0;url=`+address+`"`) {
		t.Errorf("the browser's arguments are %q, of a file with %q, %v", arguments, page, err)
	}
	for _, path := range []string{file, filepath.Dir(file)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others can read %s: %v, %v", path, info.Mode(), err)
		}
	}
	forget()
	if _, err := os.Stat(filepath.Dir(file)); !errors.Is(err, os.ErrNotExist) || said.Len() > 0 {
		t.Errorf("the file is left: %v; said %q", err, said.String())
	}
}

func TestAClosedTerminalLeavesNoFile(t *testing.T) {
	seen := playBrowser(t)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // the test itself goes on
	defer signal.Stop(hangups)
	far := httptest.NewTLSServer(http.NotFoundHandler())
	defer far.Close()
	config := kubeconfig(t, far)
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &config
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, &env.Env{Out: io.Discard, Err: io.Discard, Flags: flags, Program: "virtctl"}, options{}, testPages)
	}()
	arguments, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("virtctl web ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("virtctl web goes on")
	}
	if _, err := os.Stat(strings.TrimSpace(string(arguments))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file with the address is left: %v", err)
	}
}
