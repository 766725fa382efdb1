// Package subresource serves subresources.kubevirt.io: the verbs on VirtualMachines and VirtualMachineInstances, such as
// start, pause, console. Package verb decides a verb's effect. Verbs on a guest are forwarded to its node's virt-handler,
// streams unchanged.
//
// The package decides no permissions: the API server in front asks the cluster's authorizer about every request.
package subresource

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

// GroupVersions are equivalent, the preferred one first.
var GroupVersions = []schema.GroupVersion{
	{Group: v1.SubresourceGroupName, Version: v1.ApiLatestVersion},
	{Group: v1.SubresourceGroupName, Version: "v1alpha3"},
}

// Root is the group's path.
const Root = "/apis/" + v1.SubresourceGroupName + "/"

// Cluster must not be a cache, since a verb is judged by the current state.
type Cluster interface {
	client.Client
}

// Server serves the group.
type Server struct {
	cluster     Cluster
	transport   http.RoundTripper
	maintenance Maintenance
	mux         *http.ServeMux
	operations  []string
	resources   []metav1.APIResource
	streams     *streams
}

// New returns a Server. transport calls virt-handlers by their nodecert.DNSName, by HTTP/1.1, from which streams are
// upgraded.
func New(cluster Cluster, transport http.RoundTripper, maintenance Maintenance) *Server {
	s := &Server{cluster: cluster, transport: transport, maintenance: maintenance, mux: http.NewServeMux(), streams: newStreams()}
	s.routeMachines()
	s.routeInstances()
	s.routeCluster()
	s.routeRefused()
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer.Error(w, notServed(r, ""))
	})
	return s
}

// ServeHTTP serves the group.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Resources returns the resources for discovery of each version.
func (s *Server) Resources() []metav1.APIResource { return s.resources }

// Operations returns all methods with their paths, as patterns of http.ServeMux.
func (s *Server) Operations() []string { return s.operations }

const (
	machines  = "virtualmachines"
	instances = "virtualmachineinstances"
)

func (s *Server) routeMachines() {
	s.route(http.MethodPut, machines, "start", s.start)
	s.route(http.MethodPut, machines, "stop", s.stop)
	s.route(http.MethodPut, machines, "restart", s.restart)
	s.route(http.MethodPut, machines, "migrate", s.migrate)
	s.route(http.MethodPut, machines, "evacuate/cancel", s.cancelEvacuationOfMachine)
	s.route(http.MethodPut, machines, "addvolume", s.addToMachine)
	s.route(http.MethodPut, machines, "removevolume", s.removeFromMachine)
	s.route(http.MethodPut, machines, "memorydump", s.dumpMemory)
	s.route(http.MethodPut, machines, "removememorydump", s.removeMemoryDump)
	s.route(http.MethodGet, machines, "expand-spec", s.expandSpec)
	s.route(http.MethodPost, machines, layout.MaintenanceVerb, s.createMaintenance)
	s.route(http.MethodGet, machines, layout.MaintenanceVerb, s.getMaintenance)
	s.route(http.MethodDelete, machines, layout.MaintenanceVerb, s.deleteMaintenance)
	forward := s.stream(nodeapi.PortForward, verb.PortForward)
	s.route(http.MethodGet, machines, "portforward", forward, "{port}", "{protocol}")
}

func (s *Server) routeInstances() {
	s.route(http.MethodPut, instances, "pause", s.act(nodeapi.Pause, verb.Pause))
	s.route(http.MethodPut, instances, "unpause", s.act(nodeapi.Unpause, verb.Unpause))
	s.route(http.MethodPut, instances, "softreboot", s.act(nodeapi.SoftReboot, verb.SoftReboot))
	s.route(http.MethodPut, instances, "reset", s.act(nodeapi.Reset, verb.Reset))
	s.route(http.MethodPut, instances, "freeze", s.freeze)
	s.route(http.MethodPut, instances, "unfreeze", s.unfreeze)
	// virt-controller quiesces guests with these while their disks are snapshotted. Nobody else has the right to.
	s.route(http.MethodPut, instances, "quiesce", s.stream(nodeapi.Quiesce, verb.Ready))
	s.route(http.MethodGet, instances, "quiesce", s.stream(nodeapi.Quiesce, verb.Ready))
	s.route(http.MethodPut, instances, "release", s.stream(nodeapi.Release, verb.Ready))
	s.route(http.MethodPut, instances, "evacuate/cancel", s.cancelEvacuationOfInstance)
	s.route(http.MethodPut, instances, "addvolume", s.addToInstance)
	s.route(http.MethodPut, instances, "removevolume", s.removeFromInstance)
	s.route(http.MethodPost, instances, layout.MaintenanceVerb, s.createMaintenance)
	s.route(http.MethodGet, instances, layout.MaintenanceVerb, s.getMaintenance)
	s.route(http.MethodDelete, instances, layout.MaintenanceVerb, s.deleteMaintenance)

	s.route(http.MethodGet, instances, "guestosinfo", s.stream(nodeapi.GuestOSInfo, verb.Agent))
	s.route(http.MethodGet, instances, "userlist", s.stream(nodeapi.UserList, verb.Agent))
	s.route(http.MethodGet, instances, "filesystemlist", s.stream(nodeapi.FilesystemList, verb.Agent))

	s.route(http.MethodGet, instances, "console", s.stream(nodeapi.Console, verb.Console))
	s.route(http.MethodGet, instances, "vnc", s.stream(nodeapi.VNC, verb.VNC))
	s.route(http.MethodGet, instances, "vnc/screenshot", s.stream(nodeapi.Screenshot, verb.VNC))
	forward := s.stream(nodeapi.PortForward, verb.PortForward)
	s.route(http.MethodGet, instances, "portforward", forward, "{port}", "{protocol}")
}

func (s *Server) routeCluster() {
	s.handle(http.MethodGet, "/version", s.version)
	s.handle(http.MethodGet, "/healthz", s.healthz)
	s.handle(http.MethodGet, "/guestfs", s.guestfs)
	s.handle(http.MethodPut, "/namespaces/{namespace}/expand-vm-spec", serve(s.expandGiven))
	s.resources = append(s.resources,
		metav1.APIResource{Name: "version", Kind: "Version", Verbs: metav1.Verbs{"list"}},
		metav1.APIResource{Name: "healthz", Kind: "Health", Verbs: metav1.Verbs{"list"}},
		metav1.APIResource{Name: "guestfs", Kind: "GuestfsInfo", Verbs: metav1.Verbs{"list"}},
		metav1.APIResource{Name: "expand-vm-spec", Namespaced: true, Kind: "VirtualMachine", Verbs: metav1.Verbs{"update"}})
}

var verbs = map[string]string{http.MethodGet: "get", http.MethodPut: "update", http.MethodPost: "create", http.MethodDelete: "delete"}

// The optional elements may follow in the path.
func (s *Server) route(method, resource, subresource string, do handler, optional ...string) {
	path := "/namespaces/{namespace}/" + resource + "/{name}/" + subresource
	s.handle(method, path, serve(do))
	for _, element := range optional {
		path += "/" + element
		s.handle(method, path, serve(do))
	}
	verb := verbs[method]
	for i := range s.resources {
		if known := &s.resources[i]; known.Name == resource+"/"+subresource {
			known.Verbs = append(known.Verbs, verb)
			return
		}
	}
	s.resources = append(s.resources, metav1.APIResource{
		Name: resource + "/" + subresource, Namespaced: true, Kind: "Empty", Verbs: metav1.Verbs{verb},
	})
}

// handle serves a method and a path, relative to a version, in every version.
func (s *Server) handle(method, path string, do http.HandlerFunc) {
	for _, version := range GroupVersions {
		pattern := method + " " + Root + version.Version + path
		s.mux.HandleFunc(pattern, do)
		s.operations = append(s.operations, pattern)
	}
}
