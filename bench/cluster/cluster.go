// Package cluster is the client of the measured embedded cluster: its objects, and waits for events. It must not
// measure; its callers decide the meaning of a time.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
)

// Namespace has Drydock's components.
const Namespace = "kubevirt"

// Cluster is a running cluster with Drydock.
type Cluster struct {
	Client   client.WithWatch
	Config   *rest.Config
	Programs string
	Scheme   *runtime.Scheme
}

// Connect connects to a kubeconfig's cluster.
func Connect(kubeconfig, programs string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(cdiv1.AddToScheme(scheme))
	utilruntime.Must(snapshotv1.AddToScheme(scheme))
	c := &Cluster{Config: config, Programs: programs, Scheme: scheme}
	c.Client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// As impersonates one of Drydock's components.
func (c *Cluster) As(serviceAccount string) *rest.Config {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + Namespace + ":" + serviceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace, "system:authenticated"},
	}
	return config
}

// Program is a process of the cluster itself.
type Program struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// Status is the output of drydock status.
type Status struct {
	Dir          string    `json:"dir"`
	Supervisor   int       `json:"supervisor"`
	ControlPlane []Program `json:"controlPlane"`
	Nodes        []struct {
		Init       int       `json:"init"`
		Components []Program `json:"components"`
	} `json:"nodes"`
}

// Status returns the cluster's processes.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	out, err := c.Run(ctx, "drydock", "status", "-o", "json")
	if err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return Status{}, fmt.Errorf("reading what drydock status says: %w", err)
	}
	return s, nil
}

// AuditLogs returns the folder of the audit log.
func (c *Cluster) AuditLogs(ctx context.Context) (string, error) {
	s, err := c.Status(ctx)
	return filepath.Join(s.Dir, "logs"), err
}

// RequestsSince returns the requests of Drydock's components.
func (c *Cluster) RequestsSince(ctx context.Context, began time.Time) ([]audit.Request, error) {
	logs, err := c.AuditLogs(ctx)
	if err != nil {
		return nil, err
	}
	return audit.Since(logs, began)
}

// Run runs one of the built programs and returns its output.
func (c *Cluster) Run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Programs, program), args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", program, strings.Join(args, " "), err, complaint.String())
	}
	return string(out), nil
}

// Components returns the running pods of a component, on real nodes.
func (c *Cluster) Components(ctx context.Context, name string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(Namespace), client.MatchingLabels{v1.AppLabel: name}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", name, err)
	}
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes, client.HasLabels{SimulatedLabel}); err != nil {
		return nil, fmt.Errorf("listing the simulated nodes: %w", err)
	}
	simulated := map[string]bool{}
	for i := range nodes.Items {
		simulated[nodes.Items[i].Name] = true
	}
	var out []corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && !simulated[p.Spec.NodeName] {
			out = append(out, *p)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no pod of %s runs: deploy Drydock first", name)
	}
	return out, nil
}

// SimulatedLabel is on nodes that exist only as objects.
const SimulatedLabel = "bench.drydock.dev/simulated"

// NewNamespace returns a function that deletes the namespace.
func (c *Cluster) NewNamespace(ctx context.Context) (string, func(), error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := c.Client.Create(ctx, ns); err != nil {
		return "", nil, fmt.Errorf("creating a namespace: %w", err)
	}
	remove := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Patience)
		defer cancel()
		if err := c.Client.Delete(ctx, ns); err != nil && !apierrors.IsNotFound(err) {
			fmt.Fprintf(os.Stderr, "deleting namespace %s: %v\n", ns.Name, err)
		}
	}
	return ns.Name, remove, nil
}
