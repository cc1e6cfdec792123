package histograms

// Exported are the histograms of the exporters and of loadgen that rules, dashboards and commands read.
var Exported = []string{
	"ebpf_exporter_blkio_device_seconds",
	"ebpf_exporter_blkio_queue_seconds",
	"ebpf_exporter_blkio_total_seconds",
	"loadgen_after_outage_response_seconds",
	"loadgen_dispatch_lag_seconds",
	"loadgen_outage_seconds",
	"loadgen_response_seconds",
	"loadgen_service_seconds",
	"plumbline_query_duration_seconds",
	"plumbline_query_id_duration_seconds",
	"plumbline_replica_request_duration_seconds",
	"plumbline_replica_service_seconds",
	"plumbline_statement_layer_seconds",
	"plumbline_volume_frontend_seconds",
	"plumbline_volume_path_seconds",
	"plumbline_volume_target_seconds",
}
