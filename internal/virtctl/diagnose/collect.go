package diagnose

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/diagnose/archive"
	"drydock.dev/drydock/internal/virtctl/diagnose/findings"
	"drydock.dev/drydock/internal/virtctl/diagnose/redact"
	"drydock.dev/drydock/internal/virtctl/env"
)

// maxOfKind bounds the collected objects of a kind.
const maxOfKind = 5000

// patience bounds one answer, maxTime the whole diagnosis.
const (
	patience = 30 * time.Second
	maxTime  = 10 * time.Minute
)

// errLate is the cause of a context that ends after maxTime: the diagnosis is written as it is then.
var errLate = errors.New("the diagnosis takes too long")

// collector reads a cluster, and writes the parts that may leave it.
type collector struct {
	c     *client.Client
	out   archive.Writer
	rules *redact.Redactor
	scope *scope
	// home is the namespace of Drydock's components, own the user's, and only the one to which the diagnosis is restricted, ""
	// for none.
	home, own, only string
	// components and guests have logs; nodes are those of machines.
	components, guests []loggedPod
	nodes              map[string]bool
	// waiting are objects whose texts may quote values of objects that are not read yet; learned says that there are none left.
	waiting  []waiting
	learned  bool
	yield    func(findings.Object) bool
	machines []guest
	// objects and logs count; missing names the gaps.
	objects, logs int
	missing       []string
	// unsaid counts sentences beyond the bound.
	unsaid int
	// unserved are kinds that the cluster does not have.
	unserved []string
	answered bool
	err      error
}

func newCollector(from *client.Client, out archive.Writer, vm, own string) *collector {
	return &collector{c: from, out: out, rules: redact.New(), scope: newScope(vm), home: "kubevirt", own: own, nodes: map[string]bool{}}
}

// Bounds of the gaps: the sentences, and the characters of each.
const (
	maxMissing  = 100
	maxSentence = 500
)

// miss notes a gap, each sentence once.
func (c *collector) miss(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case slices.Contains(c.missing, text):
	case len(c.missing) >= maxMissing:
		c.unsaid++
	default:
		c.missing = append(c.missing, text)
	}
}

// sentences returns the gaps. An answer of a server or of a program may be in it.
func (c *collector) sentences() []string {
	gaps := c.rules.Gaps()
	out := make([]string, 0, len(gaps)+len(c.missing))
	out = append(out, gaps[:min(len(gaps), maxMissing)]...)
	for _, text := range c.missing {
		text = env.Plain(c.rules.Text(text))
		if letters := []rune(text); len(letters) > maxSentence {
			text = string(letters[:maxSentence]) + " …"
		}
		out = append(out, text)
	}
	if c.unsaid > 0 {
		out = append(out, fmt.Sprintf("%d more", c.unsaid))
	}
	return out
}

// all collects the objects one after the other. If it ends early, c.err says why.
func (c *collector) all(ctx context.Context) iter.Seq[findings.Object] {
	return func(yield func(findings.Object) bool) {
		read := c.each(ctx, kubeVirts)
		if c.only != "" {
			c.rules.WithholdOthers("", c.only, c.home)
		}
		read = read && c.each(ctx, ofTheInstallation...) && c.authorities(ctx) && c.each(ctx, ofTenants...)
		ended := c.err
		if !read {
			if !errors.Is(ended, errLate) || !c.answered {
				return
			}
			c.rules.WithholdOthers("not all machines were read in time", c.home)
		}
		if !c.flush(yield) {
			return
		}
		if c.err = ended; read {
			c.yield = yield
			c.each(ctx, ofKubernetes...)
		}
	}
}

func (c *collector) each(ctx context.Context, kinds ...kind) bool {
	for i := range kinds {
		if err := c.kind(ctx, &kinds[i]); err != nil {
			c.err = err
			return false
		}
	}
	return true
}

// lists returns where a kind's objects are.
func (c *collector) lists(k *kind) client.List {
	list := client.List{GroupVersionResource: k.gvr(), Labels: k.labels, Namespace: k.namespace}
	switch k.place {
	case atHome:
		list.Namespace = c.home
	case withTenants:
		list.Namespace = c.only
	case inCluster:
	}
	return list
}

// kind collects the objects of a kind. It returns an error only if nothing else can be collected either: the output fails, or
// the API server has not answered once.
func (c *collector) kind(ctx context.Context, k *kind) error {
	list, err := c.readable(ctx, k)
	c.answered = c.answered || err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case apierrors.IsForbidden(err):
		c.miss("you may not read %s%s", k.name(), of(list.Namespace))
	case apierrors.IsNotFound(err):
		c.unserved = append(c.unserved, k.name())
	case !c.answered || isWriting(err):
		return fmt.Errorf("reading %s: %w", k.name(), err)
	default:
		c.miss("%s%s: %v", k.name(), of(list.Namespace), err)
	}
	return nil
}

// readable collects the objects of a kind where they may be read, and returns where that is.
func (c *collector) readable(ctx context.Context, k *kind) (client.List, error) {
	list := c.lists(k)
	err := c.list(ctx, k, list)
	if apierrors.IsForbidden(err) && k.place == withTenants && list.Namespace == "" {
		c.miss("you may not read the %s of all namespaces: only those of namespace %s are there", k.name(), c.own)
		if !c.learned {
			c.rules.WithholdOthers("you may not read their "+k.name(), c.own, c.home)
		}
		list.Namespace = c.own
		err = c.list(ctx, k, list)
	}
	if !c.learned && k.place == withTenants && err != nil && !apierrors.IsNotFound(err) {
		c.unknown(k, list.Namespace)
	}
	return list, err
}

// unknown notes that not all values of tenants are known.
func (c *collector) unknown(k *kind, namespace string) {
	why := "not all their " + k.name() + " could be read"
	if namespace == "" {
		c.rules.WithholdOthers(why, c.home)
		return
	}
	c.rules.Withhold(namespace, why)
}

func of(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " of namespace " + namespace
}

func (c *collector) list(ctx context.Context, k *kind, list client.List) error {
	count := 0
	var failed error
	err := c.c.EachObject(ctx, list, func(u *unstructured.Unstructured) bool {
		o := object{Kind: k.name(), Unstructured: u}
		if u.GetKind() == "" {
			u.SetKind(singular[k.resource])
			u.SetAPIVersion(k.gvr().GroupVersion().String())
		}
		if c.scope.seen[string(u.GetUID())] {
			return true
		}
		wanted := c.wants(k, o)
		if wanted {
			count++
		}
		if wanted && count > maxOfKind {
			c.miss("there are more than %d %s: the others are not there", maxOfKind, k.name())
			wanted = false
		}
		if !wanted {
			if !c.learned && k.place == withTenants {
				c.rules.Keep(k.name(), o.Object) // a text may quote it
				return true
			}
			return count <= maxOfKind
		}
		c.scope.add(k.name(), o)
		c.note(k, o)
		failed = c.put(k, o)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

func (c *collector) wants(k *kind, o object) bool {
	if k.resource == "events" && k.place == withTenants && c.rules.IsOther(o.GetNamespace()) {
		return false
	}
	return k.wants == nil || k.wants(c.scope, o)
}

// waiting is an object that is not written yet.
type waiting struct {
	kind string
	path []string
	kept *redact.Kept
}

// put writes an object and gives it to the checks, as soon as the values of all tenants are known.
func (c *collector) put(k *kind, o object) error {
	w := waiting{k.name(), c.path(k, o), c.rules.Keep(k.name(), o.Object)}
	if !c.learned {
		c.waiting = append(c.waiting, w)
		return nil
	}
	return c.write(w, c.yield)
}

// flush writes the objects that wait.
func (c *collector) flush(yield func(findings.Object) bool) bool {
	c.learned = true
	for _, w := range c.waiting {
		if err := c.write(w, yield); err != nil {
			c.err = err
			return false
		}
	}
	c.waiting = nil
	return true
}

func (c *collector) write(w waiting, yield func(findings.Object) bool) error {
	left := c.rules.Finish(w.kept)
	text, err := yaml.Marshal(left)
	if err == nil {
		err = c.out.Add(text, w.path...)
	}
	if err != nil {
		return &writeError{err}
	}
	c.objects++
	if !yield(object{Kind: w.kind, Unstructured: &unstructured.Unstructured{Object: left}}) {
		return context.Canceled
	}
	return nil
}

// writeError is about the output, not about the cluster.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

func isWriting(err error) bool {
	var writing *writeError
	return errors.As(err, &writing)
}

// path returns where must-gather has an object.
func (c *collector) path(k *kind, o object) []string {
	file := o.GetName() + ".yaml"
	switch namespace := o.GetNamespace(); {
	case namespace == "":
		return []string{"cluster-scoped-resources", k.folder(), k.resource, file}
	case k.name() == "pods":
		return []string{"namespaces", namespace, "pods", o.GetName(), file}
	default:
		return []string{"namespaces", namespace, k.folder(), k.resource, file}
	}
}

// note remembers the pods and the guests that are asked after the objects are read.
func (c *collector) note(k *kind, o object) {
	switch k.name() {
	case "kubevirts.kubevirt.io":
		c.home = o.GetNamespace()
	case "pods":
		c.notePod(o)
	case "virtualmachineinstances.kubevirt.io":
		c.nodes[o.Text("status", "nodeName")] = true
		c.noteGuest(o)
	}
}

// singular has the kinds of Kubernetes's resources, which are in lists without it.
var singular = map[string]string{
	"apiservices": "APIService", "controllerrevisions": "ControllerRevision", "daemonsets": "DaemonSet", "deployments": "Deployment",
	"events": "Event", "leases": "Lease", "limitranges": "LimitRange", "namespaces": "Namespace", "nodes": "Node",
	"persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume", "poddisruptionbudgets": "PodDisruptionBudget",
	"pods": "Pod", "resourcequotas": "ResourceQuota", "storageclasses": "StorageClass",
}

// The ConfigMap has the authorities of Drydock's certificates, without keys.
const (
	authoritiesName = "kubevirt-ca"
	maxAuthorities  = 100
)

// authorities collects the times of the newest authority of each entry. The certificates themselves are in Secrets, which are
// not read.
func (c *collector) authorities(ctx context.Context) bool {
	limited, stop := context.WithTimeout(ctx, patience)
	defer stop()
	config, err := c.c.Core().ConfigMaps(c.home).Get(limited, authoritiesName, metav1.GetOptions{})
	if err != nil {
		if ctx.Err() != nil {
			c.err = context.Cause(ctx)
			return false
		}
		c.miss("the authorities in ConfigMap %s/%s: %v", c.home, authoritiesName, err)
		return true
	}
	o := object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"authorities": newest(config.Data)}}}
	o.SetName(authoritiesName)
	o.SetNamespace(c.home)
	if err := c.put(&kind{group: "diagnose.drydock.dev", resource: "authorities"}, o); err != nil {
		c.err = err
		return false
	}
	return true
}

func newest(bundles map[string]string) []any {
	var list []any
	for _, entry := range slices.Sorted(maps.Keys(bundles)) {
		var last *x509.Certificate
		rest := []byte(bundles[entry])
		for range maxAuthorities {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil && (last == nil || cert.NotAfter.After(last.NotAfter)) {
				last = cert
			}
		}
		if last != nil {
			list = append(list, map[string]any{
				"entry": entry, "notBefore": last.NotBefore.UTC().Format(time.RFC3339), "notAfter": last.NotAfter.UTC().Format(time.RFC3339),
			})
		}
	}
	return list
}
