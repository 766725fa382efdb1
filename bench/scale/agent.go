package scale

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// agent simulates virt-handler on all simulated nodes.
type agent struct {
	client    client.Client
	namespace string
	vmis      client.Reader
	// networks has the secondary networks of launcher pods, nil if they are not simulated.
	networks atomic.Pointer[networks]
	tasks    workqueue.TypedInterface[string]
	workers  sync.WaitGroup

	mu     sync.Mutex
	newest map[string]*v1.VirtualMachineInstance
	// running and gone have the times at which VMIs were observed in these states; changed is closed
	// and replaced at each addition.
	running, gone map[types.UID]time.Time
	changed       chan struct{}
	err           error
}

// agentWorkers are enough that other components never wait for the agent.
const agentWorkers = 32

// The cache resumes when the API server ends a watch, as it may under load.
func startAgent(ctx context.Context, c *cluster.Cluster, namespace string) (*agent, error) {
	config := c.As("kubevirt-handler")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return onNode{next} })
	as, err := client.New(config, client.Options{Scheme: c.Scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client that acts as virt-handler: %w", err)
	}
	a := &agent{
		client: as, namespace: namespace, tasks: workqueue.NewTyped[string](), newest: map[string]*v1.VirtualMachineInstance{},
		running: map[types.UID]time.Time{}, gone: map[types.UID]time.Time{}, changed: make(chan struct{}),
	}
	if a.vmis, err = a.watch(ctx, config, &v1.VirtualMachineInstance{}, a.handlers()); err != nil {
		return nil, fmt.Errorf("watching VMIs as virt-handler: %w", err)
	}
	context.AfterFunc(ctx, a.tasks.ShutDown)
	for range agentWorkers {
		a.workers.Go(func() { a.work(ctx) })
	}
	return a, nil
}

func (a *agent) watch(ctx context.Context, config *rest.Config, kind client.Object, handlers toolscache.ResourceEventHandler) (client.Reader, error) {
	objects, err := cache.New(config, cache.Options{Scheme: a.client.Scheme(), DefaultNamespaces: map[string]cache.Config{a.namespace: {}}})
	if err != nil {
		return nil, err
	}
	informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := informer.AddEventHandler(handlers); err != nil {
		return nil, err
	}
	a.workers.Go(func() {
		if err := objects.Start(ctx); err != nil {
			a.fail(err)
		}
	})
	return objects, nil
}

// onNode adds the node in a request's context to the impersonated user, like the token of a pod,
// because virt-handler may only write objects of its own node.
type onNode struct{ next http.RoundTripper }

type nodeKey struct{}

// RoundTrip implements http.RoundTripper.
func (o onNode) RoundTrip(request *http.Request) (*http.Response, error) {
	if node, ok := request.Context().Value(nodeKey{}).(string); ok {
		request = request.Clone(request.Context())
		request.Header.Set("Impersonate-Extra-Authentication.kubernetes.io%2fnode-name", node)
	}
	return o.next.RoundTrip(request)
}

func (a *agent) handlers() toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.see(o.(*v1.VirtualMachineInstance), false) },
		UpdateFunc: func(_, o any) { a.see(o.(*v1.VirtualMachineInstance), false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			a.see(o.(*v1.VirtualMachineInstance), true)
		},
	}
}

func (a *agent) see(vmi *v1.VirtualMachineInstance, deleted bool) {
	a.mu.Lock()
	before := len(a.running) + len(a.gone)
	if vmi.Status.Phase == v1.Running && a.running[vmi.UID].IsZero() {
		a.running[vmi.UID] = time.Now()
	}
	if deleted {
		a.gone[vmi.UID] = time.Now()
	}
	if len(a.running)+len(a.gone) > before {
		close(a.changed)
		a.changed = make(chan struct{})
	}
	_, ok := a.facts(vmi, time.Now())
	if ok = ok && !deleted; ok {
		a.newest[vmi.Name] = vmi
	}
	a.mu.Unlock()
	if ok {
		a.tasks.Add(vmi.Name)
	}
}

func (a *agent) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *agent) await(ctx context.Context, what string, n int, which func(*agent) map[types.UID]time.Time) error {
	for {
		a.mu.Lock()
		count, changed, err := len(which(a)), a.changed, a.err
		a.mu.Unlock()
		if err != nil {
			return err
		}
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d VMIs to be %s: %w; %d are", n, what, ctx.Err(), count)
		}
	}
}

func running(a *agent) map[types.UID]time.Time { return a.running }
func gone(a *agent) map[types.UID]time.Time    { return a.gone }

func (a *agent) ranAt(uid types.UID) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running[uid]
}

func (a *agent) work(ctx context.Context) {
	for {
		name, ended := a.tasks.Get()
		if ended {
			return
		}
		a.mu.Lock()
		vmi := a.newest[name]
		delete(a.newest, name)
		a.mu.Unlock()
		if vmi != nil {
			if err := a.write(ctx, vmi); err != nil && ctx.Err() == nil {
				a.fail(err)
			}
		}
		a.tasks.Done(name)
	}
}

func (a *agent) wait() { a.workers.Wait() }

// After a conflict, the watch delivers the newer version.
func (a *agent) write(ctx context.Context, instance *v1.VirtualMachineInstance) error {
	f, _ := a.facts(instance, time.Now())
	status := vmihandler.Status(instance, f)
	patch, err := vmihandler.Patch(instance, status)
	if err != nil || patch == nil {
		return err
	}
	ctx = context.WithValue(ctx, nodeKey{}, f.Node)
	err = a.client.Patch(ctx, instance.DeepCopy(), client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("patching VMI %s as virt-handler: %w", instance.Name, err)
	}
	if status.Phase == v1.Running && instance.Status.Phase == v1.Scheduled {
		err := a.client.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, GenerateName: instance.Name + "-"},
			EventTime:  metav1.NowMicro(), Type: corev1.EventTypeNormal,
			Reason: v1.Started.String(), Action: v1.Started.String(), Note: "VirtualMachineInstance started.",
			ReportingController: "virt-handler", ReportingInstance: "simulated",
			Regarding: corev1.ObjectReference{
				APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachineInstance",
				Namespace: instance.Namespace, Name: instance.Name, UID: instance.UID,
			},
		})
		if err != nil {
			return fmt.Errorf("making an event of VMI %s as virt-handler: %w", instance.Name, err)
		}
	}
	return nil
}
