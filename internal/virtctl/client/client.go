// Package client is virtctl's client of the API server, for KubeVirt objects and for the subresources of
// subresources.kubevirt.io/v1 with their streams. It knows paths, bodies and the WebSocket protocol. It must
// not print or decide anything.
package client

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
)

const subresourceRoot = "/apis/" + v1.SubresourceGroupName + "/v1"

// Resource is the plural name of a kind.
type Resource string

// The resources of virtctl's verbs.
const (
	VirtualMachines                   Resource = "virtualmachines"
	VirtualMachineInstances           Resource = "virtualmachineinstances"
	VirtualMachineInstanceReplicaSets Resource = "virtualmachineinstancereplicasets"
	VirtualMachineInstanceMigrations  Resource = "virtualmachineinstancemigrations"
	kubeVirts                         Resource = "kubevirts"
)

// Ref identifies one object.
type Ref struct {
	Resource        Resource
	Namespace, Name string
}

// Client is a client of one cluster.
type Client struct {
	config *rest.Config
	rest   *rest.RESTClient
	params runtime.ParameterCodec
	core   *corev1.CoreV1Client
}

// New returns a client. It sends no request.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the KubeVirt types: %w", err)
	}
	kubevirt := rest.CopyConfig(config)
	kubevirt.APIPath = "/apis"
	kubevirt.GroupVersion = &v1.GroupVersion
	kubevirt.ContentType = runtime.ContentTypeJSON
	kubevirt.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	restClient, err := rest.RESTClientFor(kubevirt)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	core := rest.CopyConfig(config)
	core.ContentType, core.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	coreClient, err := corev1.NewForConfig(core)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return &Client{config: kubevirt, rest: restClient, params: runtime.NewParameterCodec(scheme), core: coreClient}, nil
}

// Core returns the client of Kubernetes's objects.
func (c *Client) Core() corev1.CoreV1Interface { return c.core }

// VM reads a VirtualMachine.
func (c *Client) VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error) {
	vm := &v1.VirtualMachine{}
	return vm, c.get(ctx, Ref{VirtualMachines, namespace, name}, vm)
}

// VMI reads a VirtualMachineInstance.
func (c *Client) VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error) {
	vmi := &v1.VirtualMachineInstance{}
	return vmi, c.get(ctx, Ref{VirtualMachineInstances, namespace, name}, vmi)
}

// VMIs reads the VirtualMachineInstances of all namespaces.
func (c *Client) VMIs(ctx context.Context) ([]v1.VirtualMachineInstance, error) {
	list := &v1.VirtualMachineInstanceList{}
	err := c.rest.Get().Resource(string(VirtualMachineInstances)).Do(ctx).Into(list)
	return list.Items, err
}

// KubeVirts reads the KubeVirt objects of all namespaces.
func (c *Client) KubeVirts(ctx context.Context) ([]v1.KubeVirt, error) {
	list := &v1.KubeVirtList{}
	err := c.rest.Get().Resource(string(kubeVirts)).Do(ctx).Into(list)
	return list.Items, err
}

// Verbosity is the log verbosity in a KubeVirt object as it is written: its API type can't distinguish 0 from
// unset.
type Verbosity struct {
	Namespace, Name, ResourceVersion string
	// Levels are by field of logVerbosity; that of nodes is a map.
	Levels map[string]any
}

// Verbosities reads the log verbosities in the KubeVirt objects of all namespaces.
func (c *Client) Verbosities(ctx context.Context) ([]Verbosity, error) {
	body, err := raw(c.rest.Get().Resource(string(kubeVirts)).Do(ctx))
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     struct {
				Configuration struct {
					DeveloperConfiguration struct {
						LogVerbosity map[string]any `json:"logVerbosity"`
					} `json:"developerConfiguration"`
				} `json:"configuration"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	var all []Verbosity
	for i := range list.Items {
		meta := &list.Items[i].Metadata
		all = append(all, Verbosity{meta.Namespace, meta.Name, meta.ResourceVersion, list.Items[i].Spec.Configuration.DeveloperConfiguration.LogVerbosity})
	}
	return all, nil
}

// PatchKubeVirt applies a merge patch.
func (c *Client) PatchKubeVirt(ctx context.Context, namespace, name string, patch any) error {
	return c.patch(ctx, Ref{kubeVirts, namespace, name}, types.MergePatchType, patch)
}

// PatchVM applies a merge patch.
func (c *Client) PatchVM(ctx context.Context, namespace, name string, patch any) error {
	return c.patch(ctx, Ref{VirtualMachines, namespace, name}, types.MergePatchType, patch)
}

// AddCredential adds an entry to a VM's accessCredentials if the VM has not changed since vm was read.
func (c *Client) AddCredential(ctx context.Context, vm *v1.VirtualMachine, credential *v1.AccessCredential) error {
	const list = "/spec/template/spec/accessCredentials"
	add := map[string]any{"op": "add", "path": list + "/-", "value": credential}
	if len(vm.Spec.Template.Spec.AccessCredentials) == 0 {
		add = map[string]any{"op": "add", "path": list, "value": []*v1.AccessCredential{credential}}
	}
	unchanged := map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": vm.ResourceVersion}
	return c.patch(ctx, Ref{VirtualMachines, vm.Namespace, vm.Name}, types.JSONPatchType, []map[string]any{unchanged, add})
}

func (c *Client) patch(ctx context.Context, ref Ref, kind types.PatchType, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding the change of %s: %w", ref.Name, err)
	}
	return c.rest.Patch(kind).Namespace(ref.Namespace).Resource(string(ref.Resource)).Name(ref.Name).Body(body).Do(ctx).Error()
}

// ReplicaSet reads a VirtualMachineInstanceReplicaSet.
func (c *Client) ReplicaSet(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstanceReplicaSet, error) {
	rs := &v1.VirtualMachineInstanceReplicaSet{}
	return rs, c.get(ctx, Ref{VirtualMachineInstanceReplicaSets, namespace, name}, rs)
}

// HasDataVolume reports whether the DataVolume exists. A missing kind counts as a missing object.
func (c *Client) HasDataVolume(ctx context.Context, namespace, name string) (bool, error) {
	err := c.rest.Get().AbsPath(cdiRoot, "namespaces", namespace, "datavolumes", name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) get(ctx context.Context, ref Ref, into runtime.Object) error {
	return c.rest.Get().Namespace(ref.Namespace).Resource(string(ref.Resource)).Name(ref.Name).Do(ctx).Into(into)
}

// Parameter is a query parameter, for values without a field in the options.
type Parameter struct{ Name, Value string }

// Put calls a verb such as start. options is the body or nil.
func (c *Client) Put(ctx context.Context, ref Ref, verb string, options any, parameters ...Parameter) error {
	request := c.rest.Put().AbsPath(subresource(ref, verb)...)
	for _, p := range parameters {
		request = request.Param(p.Name, p.Value)
	}
	if options != nil {
		body, err := json.Marshal(options)
		if err != nil {
			return fmt.Errorf("encoding the options of %s: %w", verb, err)
		}
		request = request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	}
	return request.Do(ctx).Error()
}

// Get returns a subresource's response body.
func (c *Client) Get(ctx context.Context, ref Ref, verb string) ([]byte, error) {
	return raw(c.rest.Get().AbsPath(subresource(ref, verb)...).Do(ctx))
}

// ExpandSpec lets the server expand a VM's references.
func (c *Client) ExpandSpec(ctx context.Context, namespace string, vm []byte) ([]byte, error) {
	return raw(c.rest.Put().AbsPath(subresourceRoot, "namespaces", namespace, "expand-vm-spec").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(vm).Do(ctx))
}

// ServerVersion returns virt-api's version.
func (c *Client) ServerVersion(ctx context.Context) ([]byte, error) {
	return raw(c.rest.Get().AbsPath(subresourceRoot, "version").Do(ctx))
}

// Result.Raw alone would lose the server's error message.
func raw(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func subresource(ref Ref, verb string) []string {
	return []string{subresourceRoot, "namespaces", ref.Namespace, string(ref.Resource), ref.Name, verb}
}
