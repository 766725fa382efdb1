// Package policyagent enforces the cluster's NetworkPolicies on a node. It watches pods, namespaces
// and policies, and loads the nftables table that package podpolicy renders. The CNI plugin announces
// each pod of the node that has its addresses, before its containers start.
//
// The kernel's rules stay when the agent ends: running pods keep the current rules, and new pods wait
// for the next agent. Sandboxes are stored in files, which the CNI plugin deletes with the sandbox, so
// a pod is isolated as long as it runs, even if its object was deleted by force.
//
// It must decide no rule and write nothing to the API server (decision 650).
package policyagent

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"drydock.dev/local/internal/podpolicy"
)

const (
	// interval is the minimum between updates of the rules, unless a pod waits for one.
	interval = 100 * time.Millisecond
	// retry is the delay after rules that the kernel rejected.
	retry = 2 * time.Second
)

// Config describes the agent's node.
type Config struct {
	Node string
	// Bridge connects the node's pods.
	Bridge string
	Host   netip.Addr
	// Folder has the socket and the sandboxes' files. It ends with the node.
	Folder string
}

type cluster interface {
	Pods() []*corev1.Pod
	Namespaces() []*corev1.Namespace
	Policies() []*networkingv1.NetworkPolicy
	// Pod reads the pod of a sandbox, nil if it is gone.
	Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error)
}

type agent struct {
	Config
	cluster   cluster
	sandboxes *sandboxes
	load      func(script string) error
	// wake has one element after a change.
	wake chan struct{}

	mu     sync.Mutex
	loaded string
	over   []string
}

func newAgent(c Config, of cluster, load func(string) error) (*agent, error) {
	noted, err := openSandboxes(c.Folder)
	if err != nil {
		return nil, err
	}
	return &agent{Config: c, cluster: of, sandboxes: noted, load: load, wake: make(chan struct{}, 1)}, nil
}

func (a *agent) changed() {
	select {
	case a.wake <- struct{}{}:
	default: // already scheduled
	}
}

func (a *agent) run(ctx context.Context) {
	for {
		pause := interval
		if err := a.apply(); err != nil {
			log.Print(err)
			a.changed()
			pause = retry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
	}
}

func (a *agent) apply() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	script, over := podpolicy.Rules(a.state())
	if !slices.Equal(over, a.over) {
		a.over = over
		for _, namespace := range over {
			log.Printf("the network policies of namespace %s admit more than fits: what is above the limit is not admitted; make them fewer or simpler", namespace)
		}
	}
	if script == a.loaded {
		return nil
	}
	if err := a.load(script); err != nil {
		return fmt.Errorf("loading the rules of the network policies: %w", err)
	}
	a.loaded = script
	return nil
}

// A sandbox keeps its addresses, whatever a pod's status claims; among statuses the youngest pod wins.
func (a *agent) state() podpolicy.State {
	s := podpolicy.State{Bridge: a.Bridge, Host: a.Host, Policies: a.cluster.Policies(), Namespaces: map[string]labels.Set{}}
	for _, namespace := range a.cluster.Namespaces() {
		s.Namespaces[namespace.Name] = namespace.Labels
	}
	objects := a.cluster.Pods()
	slices.SortFunc(objects, func(x, y *corev1.Pod) int { return y.CreationTimestamp.Compare(x.CreationTimestamp.Time) })
	taken := map[netip.Addr]bool{}
	for _, pod := range a.sandboxes.pods(objects, a.Node) {
		s.Pods = append(s.Pods, claim(pod, taken))
	}
	for _, object := range objects {
		if pod, ok := podpolicy.PodOf(object, a.Node); ok {
			s.Pods = append(s.Pods, claim(pod, taken))
		}
	}
	return s
}

// claim removes addresses that another pod has taken.
func claim(pod podpolicy.Pod, taken map[netip.Addr]bool) podpolicy.Pod {
	var own []netip.Addr
	for _, addr := range pod.Addresses {
		if !taken[addr] {
			taken[addr] = true
			own = append(own, addr)
		}
	}
	pod.Addresses = own
	return pod
}

// admit returns when a new pod's policies are enforced.
func (a *agent) admit(ctx context.Context, s sandbox) error {
	pod, err := a.cluster.Pod(ctx, s.Namespace, s.Name, s.UID)
	if err != nil {
		return fmt.Errorf("reading pod %s/%s for its network policies: %w", s.Namespace, s.Name, err)
	}
	if pod == nil {
		return fmt.Errorf("pod %s/%s (%s) is gone: it gets no network", s.Namespace, s.Name, s.UID)
	}
	seen, ok := podpolicy.PodOf(pod, a.Node)
	if !ok {
		return fmt.Errorf("pod %s/%s has ended: it gets no network", s.Namespace, s.Name)
	}
	s.Labels, s.Ports = seen.Labels, seen.Ports
	s.Object = seen.UID
	if err := a.sandboxes.note(s); err != nil {
		return err
	}
	if err := a.apply(); err != nil {
		return errors.Join(err, a.sandboxes.forget(s.Container))
	}
	return nil
}
