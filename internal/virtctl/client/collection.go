package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// A page has few objects, since an object may have a mebibyte.
const (
	pageObjects = 50
	maxPage     = 128 << 20
	maxPages    = 2000
)

// patience bounds one answer, which may come slowly.
const patience = 30 * time.Second

// List is a list of objects of any kind.
type List struct {
	schema.GroupVersionResource
	// Namespace is empty for objects without a namespace, and for those of all namespaces.
	Namespace string
	// Labels and Fields are selectors.
	Labels, Fields string
}

// EachObject reads a list page by page, and calls seen with each object until it returns false.
func (c *Client) EachObject(ctx context.Context, list List, seen func(*unstructured.Unstructured) bool) error {
	asked := map[string]bool{}
	for next := ""; ; {
		if asked[next] || len(asked) == maxPages {
			return errEndless
		}
		asked[next] = true
		page, err := c.page(ctx, list, next)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if !seen(&unstructured.Unstructured{Object: item}) {
				return nil
			}
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []map[string]any `json:"items"`
}

func (c *Client) page(ctx context.Context, list List, next string) (*page, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	request := c.rest.Get().AbsPath(root(list.GroupVersion())).NamespaceIfScoped(list.Namespace, list.Namespace != "").
		Resource(list.Resource).Param("limit", fmt.Sprint(pageObjects))
	for _, p := range []Parameter{{"labelSelector", list.Labels}, {"fieldSelector", list.Fields}, {"continue", next}} {
		if p.Value != "" {
			request = request.Param(p.Name, p.Value)
		}
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	text, err := bounded(body, maxPage)
	if err != nil {
		return nil, fmt.Errorf("reading the list: %w", err)
	}
	p := &page{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("decoding the list: %w", err)
	}
	return p, nil
}

func root(version schema.GroupVersion) string {
	if version.Group == "" {
		return "/api/" + version.Version
	}
	return "/apis/" + version.Group + "/" + version.Version
}

var (
	errTooLong = errors.New("the answer is too long")
	errEndless = errors.New("the list does not end")
)

func bounded(from io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = errTooLong
	}
	return text, err
}

// A log's lines have at most lineBytes each, and most have far fewer.
const (
	lineBytes    = 16 << 10
	usualBytes   = 100
	maxLogToRead = 64 << 20
)

// Log returns the end of a container's log, at most limit bytes, which begins with a line. previous is the log of the container
// before its last restart.
func (c *Client) Log(ctx context.Context, pod *unstructured.Unstructured, container string, previous bool, limit int) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	// With LimitBytes the beginning of these lines would be returned. If they are too long, fewer are enough.
	for _, lines := range []int64{int64(limit / usualBytes), int64(limit/lineBytes + 1)} {
		log, err := c.core.Pods(pod.GetNamespace()).GetLogs(pod.GetName(), &corev1.PodLogOptions{
			Container: container, Previous: previous, Timestamps: true, TailLines: &lines,
		}).Stream(ctx)
		if err != nil {
			return nil, err
		}
		end, err := endOf(log, limit, maxLogToRead)
		_ = log.Close()
		if !errors.Is(err, errTooLong) {
			return end, err
		}
	}
	return nil, errTooLong
}

// endOf returns the last lines of a text, at most limit bytes. It reads at most atMost bytes.
func endOf(from io.Reader, limit, atMost int) ([]byte, error) {
	var end []byte
	block := make([]byte, 32<<10)
	isCut := false
	for read := 0; ; {
		n, err := from.Read(block)
		end = append(end, block[:n]...)
		if len(end) > 2*limit+len(block) {
			end = append(end[:0], end[len(end)-limit-1:]...)
			isCut = true
		}
		if read += n; read > atMost {
			return nil, errTooLong
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading the log: %w", err)
		}
		if len(end) > limit {
			end, isCut = end[len(end)-limit-1:], true
		}
		if isCut {
			_, end, _ = bytes.Cut(end, []byte("\n"))
		}
		return end, nil
	}
}

// Output returns the output of a command in a container, at most limit bytes. A command that fails, or prints more, is an error.
func (c *Client) Output(ctx context.Context, namespace, pod, container string, limit int, command ...string) ([]byte, error) {
	target, err := c.streamURL([]string{"/api/v1/namespaces", namespace, "pods", pod, "exec"})
	if err != nil {
		return nil, err
	}
	target.RawQuery = url.Values{"container": {container}, "stdout": {"true"}, "stderr": {"true"}, "command": command}.Encode()
	conn, err := c.upgrade(ctx, target, attachProtocol)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var out, complaint []byte
	for {
		_, message, err := conn.ReadMessage()
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading what the command prints: %w", err)
		case len(message) == 0:
			continue
		case len(out)+len(complaint)+len(message) > limit:
			return nil, errTooLong
		}
		switch message[0] {
		case stdoutChannel:
			out = append(out, message[1:]...)
		case stderrChannel:
			complaint = append(complaint, message[1:]...)
		case statusChannel:
			return out, exitOf(message[1:], complaint)
		}
	}
}

func exitOf(status, complaint []byte) error {
	var end metav1.Status
	if err := json.Unmarshal(status, &end); err != nil {
		return fmt.Errorf("reading the command's exit status: %w", err)
	}
	if end.Status != metav1.StatusSuccess {
		return fmt.Errorf("%s: %s", end.Message, complaint)
	}
	return nil
}
