package metrictable

var (
	ofVMI         = []string{"namespace", "vmi"}
	ofCertificate = []string{"secret", "part"}
)

var ofAPI = []Metric{
	{Name: "kubevirt_virt_api_ready_status", By: API, Type: Gauge, Help: "Whether virt-api answers requests and kube-apiserver knows its certificate's authority."},
	{Name: "kubevirt_console_active_connections", By: API, Type: Gauge, Labels: ofVMI, Help: "Number of open connections to a VMI's serial console."},
	{Name: "kubevirt_vnc_active_connections", By: API, Type: Gauge, Labels: ofVMI, Help: "Number of open connections to a VMI's screen."},
	{Name: "kubevirt_portforward_active_tunnels", By: API, Type: Gauge, Labels: ofVMI, Help: "Number of open tunnels to ports of a VMI."},
	{Name: "kubevirt_vmi_last_api_connection_timestamp_seconds", By: API, Type: Gauge, Labels: ofVMI, Help: "When a console, a screen or a tunnel of a VMI was last asked for.",
		Note: "since this virt-api started, of at least the 2048 VMIs that were asked for last"},
	{Name: "drydock_certificate_expiry_timestamp_seconds", By: API, Type: Gauge, Labels: ofCertificate, Help: "When a certificate in one of Drydock's Secrets expires.", Note: "`part` is authority or certificate"},
	{Name: "drydock_certificate_renewal_timestamp_seconds", By: API, Type: Gauge, Labels: ofCertificate, Help: "When a certificate in one of Drydock's Secrets is due to be renewed.", Note: "`part` is authority or certificate"},
}

// ofAll are the metrics of each component's own process.
var ofAll = []Metric{
	{Name: "kubevirt_rest_client_requests_total", By: Process, Type: Counter, Labels: []string{"code", "method", "host", "resource", "verb"}, Help: "Requests to the API server by their result.", Note: "`code` is `<error>` without an answer"},
	{Name: "kubevirt_rest_client_request_latency_seconds", By: Process, Type: Histogram, Labels: []string{"verb", "url"}, Help: "Time of requests to the API server.", Note: "`url` has placeholders for namespaces and names"},
	{Name: "kubevirt_rest_client_rate_limiter_duration_seconds", By: Process, Type: Histogram, Labels: []string{"verb", "url"}, Help: "Time for which requests waited for the limit of their rate.", Note: "`url` has placeholders for namespaces and names"},
	{Name: "kubevirt_workqueue_depth", By: Process, Type: Gauge, Labels: []string{"name"}, Help: "Number of objects that wait in a loop's queue."},
	{Name: "kubevirt_workqueue_adds_total", By: Process, Type: Counter, Labels: []string{"name"}, Help: "Objects that were added to a loop's queue."},
	{Name: "kubevirt_workqueue_retries_total", By: Process, Type: Counter, Labels: []string{"name"}, Help: "Objects that were added to a loop's queue again after a failure."},
	{Name: "kubevirt_workqueue_queue_duration_seconds", By: Process, Type: Histogram, Labels: []string{"name"}, Help: "Time for which objects waited in a loop's queue."},
	{Name: "kubevirt_workqueue_work_duration_seconds", By: Process, Type: Histogram, Labels: []string{"name"}, Help: "Time that a loop needed for an object."},
	{Name: "kubevirt_workqueue_unfinished_work_seconds", By: Process, Type: Gauge, Labels: []string{"name"}, Help: "Time that a loop has spent on objects that it has not finished."},
	{Name: "kubevirt_workqueue_longest_running_processor_seconds", By: Process, Type: Gauge, Labels: []string{"name"}, Help: "Time that a loop has spent on the object that it began first and has not finished."},
}
