package subresource

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// refusedVerb is a subresource of KubeVirt that Drydock does not serve, with the alternative for users. Discovery does not
// list it.
type refusedVerb struct {
	method string
	// path is relative to a namespace's objects or, for a cluster-wide verb, to the group's version.
	path    string
	instead string
}

const (
	oneMachine  = "namespaces/{namespace}/" + machines + "/{name}/"
	oneInstance = "namespaces/{namespace}/" + instances + "/{name}/"
)

const (
	noGraph    = "'kubectl get vm,vmi,pods,datavolumes,pvc' lists what belongs to a machine; pods and claims name their machine in labels and owner references"
	noSEV      = "guests whose memory is encrypted are not supported: leave spec.template.spec.domain.launchSecurity away"
	noBackup   = "copy the disks of a VirtualMachineSnapshot: make a DataVolume whose source is the snapshot of the disk"
	noProfiler = "start the component with --pprof-addr and read /debug/pprof there"
)

var refusedVerbs = []refusedVerb{
	{http.MethodGet, oneMachine + "objectgraph", noGraph},
	{http.MethodGet, oneInstance + "objectgraph", noGraph},
	{http.MethodGet, oneInstance + "usbredir", "give the device to the guest over the network, with usbip between the client and the guest"},
	{http.MethodGet, oneInstance + "vsock", "reach the guest's ports with 'virtctl port-forward'"},
	{http.MethodGet, oneInstance + "sev/fetchcertchain", noSEV},
	{http.MethodGet, oneInstance + "sev/querylaunchmeasurement", noSEV},
	{http.MethodPut, oneInstance + "sev/setupsession", noSEV},
	{http.MethodPut, oneInstance + "sev/injectlaunchsecret", noSEV},
	{http.MethodPut, oneInstance + "backup", noBackup},
	{http.MethodPut, oneInstance + "redefine-checkpoint", noBackup},
	{http.MethodGet, "start-cluster-profiler", noProfiler},
	{http.MethodGet, "stop-cluster-profiler", noProfiler},
	{http.MethodGet, "dump-cluster-profiler", noProfiler},
}

// OpenAPI does not describe the refused verbs, since they can't be used.
func (s *Server) routeRefused() {
	for _, verb := range refusedVerbs {
		refuse := func(w http.ResponseWriter, r *http.Request) { answer.Error(w, notServed(r, verb.instead)) }
		for _, version := range GroupVersions {
			s.mux.HandleFunc(verb.method+" "+Root+version.Version+"/"+verb.path, refuse)
		}
	}
}

func notServed(r *http.Request, instead string) error {
	message := r.Method + " " + r.URL.Path + ": " + supported.NotSupported
	if instead != "" {
		message += ": " + instead
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: message,
	}}
}
