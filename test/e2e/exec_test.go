//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errNotRun is for a command of which the API server did not tell an exit status.
var errNotRun = errors.New("its exit status is unknown")

// inPod runs a shell command in a pod's first container, and returns its standard output, of one that fails with the
// standard error. It runs the command again if a busy node has not begun it. Tests repeat such commands until they
// succeed, and a kubectl for each takes long to start.
func inPod(t *testing.T, namespace, name, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for again, end := time.Tick(time.Second), time.Now().Add(oneAttempt); ; {
		out, err := inPodOnce(ctx, namespace, name, command)
		if !errors.Is(err, errNotRun) || time.Now().After(end) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-again:
		}
	}
}

func inPodOnce(ctx context.Context, namespace, name, command string) (string, error) {
	pod := &corev1.Pod{}
	if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return "", err
	}
	conn, err := dialExec(ctx, pod, "sh", "-c", command)
	if err != nil {
		return "", fmt.Errorf("running %q in pod %s: %w: %w", command, name, errNotRun, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	out, beside, err := readExec(conn)
	if err != nil {
		out += beside
	}
	return strings.TrimSpace(out), err
}

// execProtocol is Kubernetes's protocol for a container's streams: the first byte of a message identifies the stream.
const execProtocol = "v5.channel.k8s.io"

const (
	stdoutChannel, stderrChannel = 1, 2
	// statusChannel carries the end as a Status.
	statusChannel = 3
)

func dialExec(ctx context.Context, pod *corev1.Pod, command ...string) (*websocket.Conn, error) {
	tlsConfig, err := rest.TLSConfigFor(cluster.config)
	if err != nil {
		return nil, err
	}
	// A WebSocket needs HTTP/1.1; the TLS settings may offer h2.
	tlsConfig = tlsConfig.Clone()
	tlsConfig.NextProtos = []string{"http/1.1"}
	target, _, err := rest.DefaultServerUrlFor(cluster.config)
	if err != nil {
		return nil, err
	}
	target.Scheme = "wss"
	target.Path = fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/exec", pod.Namespace, pod.Name)
	target.RawQuery = url.Values{
		"container": {pod.Spec.Containers[0].Name}, "command": command, "stdout": {"true"}, "stderr": {"true"},
	}.Encode()
	dialer := websocket.Dialer{TLSClientConfig: tlsConfig, Subprotocols: []string{execProtocol}}
	conn, response, err := dialer.DialContext(ctx, target.String(), nil)
	if response != nil {
		_ = response.Body.Close()
	}
	return conn, err
}

// readExec returns the output of a command, and an error if it fails.
func readExec(conn *websocket.Conn) (out, beside string, err error) {
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return out, beside, fmt.Errorf("reading a command's output: %w: %w", errNotRun, err)
		}
		if len(message) == 0 {
			continue
		}
		switch text := message[1:]; message[0] {
		case stdoutChannel:
			out += string(text)
		case stderrChannel:
			beside += string(text)
		case statusChannel:
			return out, beside, exitOf(text)
		}
	}
}

func exitOf(text []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("reading a command's end: %w", err)
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		return nil
	case status.Reason == remotecommand.NonZeroExitCodeReason:
		return errors.New(status.Message)
	}
	return fmt.Errorf("%w: %s", errNotRun, status.Message)
}
