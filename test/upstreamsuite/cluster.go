package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

const patience = 5 * time.Minute

var silent = log.New(io.Discard, "", 0)

const registryPort = "5000"

// objects configure Drydock as the suite expects.
//
//go:embed objects.yaml
var objects string

type cluster struct {
	kubeconfig string
	// drydock is the program that contains kubectl; specs call virtctl.
	drydock, virtctl string
	// Nodes and pods reach this machine at host.
	host string
}

func newCluster(repository string) (cluster, error) {
	c := cluster{
		kubeconfig: os.Getenv("KUBECONFIG"),
		drydock:    filepath.Join(repository, "bin", "drydock"), virtctl: filepath.Join(repository, "bin", "virtctl"),
	}
	if c.kubeconfig == "" {
		return c, errors.New("KUBECONFIG is not set: the suite needs a cluster with Drydock; make test-upstream-suite starts one")
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return c, fmt.Errorf("reading %s: %w", c.kubeconfig, err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return c, fmt.Errorf("reading the server's address in %s: %w", c.kubeconfig, err)
	}
	c.host = server.Hostname()
	return c, nil
}

func (c cluster) prefix() string { return c.host + ":" + registryPort + "/kubevirt" }

func (c cluster) run(ctx context.Context, input io.Reader, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.drydock, args...)
	cmd.Stdin = input
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running drydock %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (c cluster) prepare(ctx context.Context, archives []string) error {
	if err := c.run(ctx, nil, append([]string{"image", "load"}, archives...)...); err != nil {
		return err
	}
	proxy, err := c.forwardUploads(ctx)
	if err != nil {
		return err
	}
	text, err := c.objects(proxy)
	if err != nil {
		return err
	}
	return c.run(ctx, text, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (c cluster) objects(uploadProxy string) (io.Reader, error) {
	parsed, err := template.New("objects").Parse(objects)
	if err != nil {
		return nil, fmt.Errorf("reading the objects: %w", err)
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, struct{ Registry, UploadProxy string }{c.host + ":" + registryPort, uploadProxy})
	if err != nil {
		return nil, fmt.Errorf("writing the objects: %w", err)
	}
	return &text, nil
}

var forwarded = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// forwardUploads forwards a local address to the upload proxy until the context ends, and returns that address.
func (c cluster) forwardUploads(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, c.drydock, "kubectl", "-n", "kubevirt", "port-forward", "service/cdi-uploadproxy", ":443")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("forwarding uploads: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("forwarding uploads: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	address := forwarded.FindString(line)
	if err != nil || address == "" {
		return "", fmt.Errorf("forwarding uploads: kubectl port-forward said %q: %w", line, err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // it was killed
	}()
	return "https://" + address, nil
}

type order struct {
	specs  []spec
	bound  time.Duration
	folder string
}

const reportName = "report.json"

// A failed spec is in the report and is no error.
func (c cluster) runSuite(ctx context.Context, w workshop, o order) error {
	kubectl := filepath.Join(o.folder, "kubectl")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\nexec "+c.drydock+" kubectl \"$@\"\n"), 0o755); err != nil {
		return fmt.Errorf("preparing the run: %w", err)
	}
	config := filepath.Join(o.folder, "storage.json")
	if err := os.WriteFile(config, []byte(storage), 0o644); err != nil {
		return fmt.Errorf("preparing the run: %w", err)
	}
	args := []string{
		"-kubeconfig=" + c.kubeconfig, "-kubectl-path=" + kubectl, "-virtctl-path=" + c.virtctl, "-config=" + config,
		"-installed-namespace=kubevirt", "-cdi-namespace=kubevirt",
		"-container-prefix=" + c.prefix(), "-container-tag=" + imageTag,
		"-ginkgo.v", "-ginkgo.timeout=" + o.bound.String(),
	}
	return w.runSuite(ctx, o.folder, append(args, focus(o.specs)...))
}

// storage has the embedded cluster's classes.
const storage = `{
  "storageClassRhel": "local", "storageClassWindows": "local",
  "storageRWXFileSystem": "shared", "storageRWXBlock": "shared",
  "storageRWOFileSystem": "local", "storageRWOBlock": "local-immediate",
  "storageSnapshot": "local", "storageVMState": "shared", "storageClassCSI": "local"
}
`

// suiteName precedes each spec's text when ginkgo matches it against the focus.
const suiteName = "KubeVirt Tests Suite"

// Specs are chosen by their whole texts.
func focus(specs []spec) []string {
	var args []string
	for _, s := range specs {
		args = append(args, "-ginkgo.focus=^"+regexp.QuoteMeta(suiteName+" "+s.text)+"$")
	}
	return args
}

// A dry run asks no cluster.
func (w workshop) specs(ctx context.Context) ([]spec, error) {
	folder := filepath.Join(string(w), "dry")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("listing the suite's specs: %w", err)
	}
	if err := w.runSuite(ctx, folder, []string{"-ginkgo.dry-run"}); err != nil {
		return nil, err
	}
	specs, _, err := readReport(filepath.Join(folder, reportName))
	return only(specs, spec.inScope), err
}

func (w workshop) runSuite(ctx context.Context, folder string, args []string) error {
	report := filepath.Join(folder, reportName)
	if err := os.RemoveAll(report); err != nil {
		return fmt.Errorf("running the suite: %w", err)
	}
	output, err := os.Create(filepath.Join(folder, "output.log"))
	if err != nil {
		return fmt.Errorf("running the suite: %w", err)
	}
	defer func() { _ = output.Close() }()
	suite, err := filepath.Abs(w.suite())
	if err != nil {
		return fmt.Errorf("running the suite: %w", err)
	}
	cmd := exec.CommandContext(ctx, suite, append(args, "-ginkgo.no-color", "-ginkgo.json-report="+report, "-artifacts="+filepath.Join(folder, "artifacts"))...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.source(), output, output
	// On an interrupt, the suite cleans up and writes its report.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	// It dumps the whole cluster for the first failures, which takes longer than most specs.
	cmd.Env = append(os.Environ(), "REPORTER_MAX_FAILS=-1")
	failed := cmd.Run()
	if _, err := os.Stat(report); err != nil {
		return fmt.Errorf("running the suite: %w; it wrote no report, and %s has what it printed", errors.Join(failed, err), output.Name())
	}
	return nil
}
