package main

// call is a function of DAT and what it is here.
type call struct {
	name    string
	flavour string // k, u, or both
	symbols []string
	// why, instead of symbols, says in a line why there is none.
	why string
}

// section is a table of calls.
type section struct {
	title string
	calls []call
}

// The functions of kDAPL 2.0 and uDAPL 2.0, as the specification's tables list them.
var sections = []section{
	{"Interface adapters, contexts, errors", []call{
		{"dat_ia_open", "ku", []string{"registry.Open"}, ""},
		{"dat_ia_openv", "ku", []string{"registry.OpenWith", "dat.Open"}, ""},
		{"dat_ia_query", "ku", []string{"dat.IA.Query"}, ""},
		{"dat_ia_close", "ku", []string{"dat.IA.Close"}, ""},
		{"dat_ia_memtype_hint", "k", []string{"dat.IA.MemTypeHint"}, ""},
		{"dat_ia_reserved_lmr", "k", []string{"dat.IA.ReservedLMR"}, ""},
		{"ia_ha_related", "ku", []string{"dat.IA.HARelated"}, ""},
		{"dat_set_consumer_context", "ku", []string{"dat.Object.SetContext"}, ""},
		{"dat_get_consumer_context", "ku", []string{"dat.Object.Context"}, ""},
		{"dat_get_handle_type", "ku", []string{"dat.Object.HandleType"}, ""},
		{"dat_strerror", "ku", []string{"dat.Strerror"}, ""},
		{"dat_extension_op", "ku", []string{"dat.ExtensionOp"}, ""},
	}},
	{"Event dispatchers and notification", []call{
		{"dat_evd_kcreate", "k", []string{"dat.IA.NewEVD"}, ""},
		{"dat_evd_create", "u", []string{"dat.IA.NewEVD"}, ""},
		{"dat_evd_modify_upcall", "k", []string{"dat.EVD.ModifyUpcall", "dat.EVD.Teardown"}, ""},
		{"dat_evd_query", "ku", []string{"dat.EVD.Query"}, ""},
		{"dat_evd_resize", "ku", []string{"dat.EVD.Resize"}, ""},
		{"dat_evd_dequeue", "ku", []string{"dat.EVD.Dequeue", "dat.EVD.DequeueInto", "dat.EVD.Drain"}, ""},
		{"dat_evd_post_se", "ku", []string{"dat.EVD.PostSE"}, ""},
		{"dat_evd_free", "ku", []string{"dat.EVD.Free"}, ""},
		{"dat_evd_wait", "u", []string{"dat.EVD.Wait", "dat.EVD.Events"}, ""},
		{"dat_evd_enable", "u", []string{"dat.EVD.Enable"}, ""},
		{"dat_evd_disable", "u", []string{"dat.EVD.Disable"}, ""},
		{"dat_evd_set_unwaitable", "u", []string{"dat.EVD.SetUnwaitable"}, ""},
		{"dat_evd_clear_unwaitable", "u", []string{"dat.EVD.ClearUnwaitable"}, ""},
		{"dat_evd_modify_cno", "u", []string{"dat.EVD.ModifyCNO"}, ""},
		{"dat_cno_create", "u", []string{"dat.IA.NewCNO"}, ""},
		{"dat_cno_fd_create", "u", []string{"dat.IA.NewCNOFD", "dat.CNO.FD"}, ""},
		{"dat_cno_modify_agent", "u", []string{"dat.CNO.ModifyAgent"}, ""},
		{"dat_cno_query", "u", []string{"dat.CNO.Query"}, ""},
		{"dat_cno_wait", "u", []string{"dat.CNO.Wait"}, ""},
		{"dat_cno_trigger", "u", []string{"dat.CNO.Trigger"}, ""},
		{"dat_cno_free", "u", []string{"dat.CNO.Free"}, ""},
	}},
	{"Service points and connection requests", []call{
		{"dat_psp_create", "ku", []string{"dat.IA.NewPSP"}, ""},
		{"dat_psp_create_any", "ku", []string{"dat.IA.NewPSP", "dat.PSP.ConnQual"}, ""},
		{"dat_psp_query", "ku", []string{"dat.PSP.Query"}, ""},
		{"dat_psp_free", "ku", []string{"dat.PSP.Free"}, ""},
		{"dat_rsp_create", "ku", []string{"dat.IA.NewRSP"}, ""},
		{"dat_rsp_query", "ku", []string{"dat.RSP.Query"}, ""},
		{"dat_rsp_free", "ku", []string{"dat.RSP.Free"}, ""},
		{"dat_csp_create", "ku", []string{"dat.IA.NewCSP"}, ""},
		{"dat_csp_query", "ku", []string{"dat.CSP.Query"}, ""},
		{"dat_csp_free", "ku", []string{"dat.CSP.Free"}, ""},
		{"dat_cr_query", "ku", []string{"dat.CR.Query"}, ""},
		{"dat_cr_accept", "ku", []string{"dat.CR.Accept"}, ""},
		{"dat_cr_reject", "ku", []string{"dat.CR.Reject"}, ""},
		{"dat_cr_handoff", "ku", []string{"dat.CR.Handoff"}, ""},
	}},
	{"End points", []call{
		{"dat_ep_create", "ku", []string{"dat.PZ.NewEP", "dat.IA.NewEP"}, ""},
		{"dat_ep_create_with_srq", "ku", []string{"dat.PZ.NewEP", "dat.PZ.NewSRQ"}, ""},
		{"dat_ep_query", "ku", []string{"dat.EP.Query"}, ""},
		{"dat_ep_modify", "ku", []string{"dat.EP.Modify"}, ""},
		{"dat_ep_connect", "ku", []string{"dat.EP.Connect"}, ""},
		{"dat_ep_dup_connect", "ku", []string{"dat.EP.DupConnect"}, ""},
		{"dat_ep_common_connect", "ku", []string{"dat.EP.CommonConnect"}, ""},
		{"dat_ep_disconnect", "ku", []string{"dat.EP.Disconnect"}, ""},
		{"dat_ep_post_send", "ku", []string{"dat.EP.PostSend", "dat.EP.Post"}, ""},
		{"dat_ep_post_send_with_invalidate", "ku", []string{"dat.EP.PostSendWithInvalidate"}, ""},
		{"dat_ep_post_recv", "ku", []string{"dat.EP.PostRecv", "dat.EP.PostRecvs"}, ""},
		{"dat_ep_post_rdma_read", "ku", []string{"dat.EP.PostRDMARead"}, ""},
		{"dat_ep_post_rdma_read_to_rmr", "ku", []string{"dat.EP.PostRDMAReadToRMR"}, ""},
		{"dat_ep_post_rdma_write", "ku", []string{"dat.EP.PostRDMAWrite"}, ""},
		{"dat_ep_get_status", "ku", []string{"dat.EP.Status"}, ""},
		{"dat_ep_free", "ku", []string{"dat.EP.Free"}, ""},
		{"dat_ep_reset", "ku", []string{"dat.EP.Reset"}, ""},
		{"dat_ep_recv_query", "ku", []string{"dat.EP.RecvQuery"}, ""},
		{"dat_ep_set_watermark", "ku", []string{"dat.EP.SetWatermark"}, ""},
	}},
	{"Memory", []call{
		{"dat_pz_create", "ku", []string{"dat.IA.NewPZ"}, ""},
		{"dat_pz_query", "ku", []string{"dat.PZ.Query"}, ""},
		{"dat_pz_free", "ku", []string{"dat.PZ.Free"}, ""},
		{"dat_lmr_kcreate", "k", []string{"dat.PZ.NewLMR", "dat.PZ.Register"}, ""},
		{"dat_lmr_create", "u", []string{"dat.PZ.NewLMR"}, ""},
		{"dat_lmr_query", "ku", []string{"dat.LMR.Query"}, ""},
		{"dat_lmr_free", "ku", []string{"dat.LMR.Free"}, ""},
		{"dat_lmr_allocate", "k", []string{"dat.PZ.AllocateLMR"}, ""},
		{"dat_lmr_fmr", "k", []string{"dat.LMR.FMR"}, ""},
		{"dat_lmr_invalidate", "k", []string{"dat.LMR.Invalidate"}, ""},
		{"dat_lmr_sync_rdma_read", "ku", []string{"dat.IA.SyncRDMARead"}, ""},
		{"dat_lmr_sync_rdma_write", "ku", []string{"dat.IA.SyncRDMAWrite"}, ""},
		{"dat_rmr_create", "ku", []string{"dat.PZ.NewRMR"}, ""},
		{"dat_rmr_create_for_ep", "ku", []string{"dat.PZ.NewRMRForEP"}, ""},
		{"dat_rmr_query", "ku", []string{"dat.RMR.Query"}, ""},
		{"dat_rmr_bind", "ku", []string{"dat.RMR.Bind"}, ""},
		{"dat_rmr_free", "ku", []string{"dat.RMR.Free"}, ""},
	}},
	{"Shared receive queues", []call{
		{"dat_srq_create", "ku", []string{"dat.PZ.NewSRQ"}, ""},
		{"dat_srq_post_recv", "ku", []string{"dat.SRQ.PostRecv"}, ""},
		{"dat_srq_query", "ku", []string{"dat.SRQ.Query"}, ""},
		{"dat_srq_resize", "ku", []string{"dat.SRQ.Resize"}, ""},
		{"dat_srq_set_lw", "ku", []string{"dat.SRQ.SetLowWatermark"}, ""},
		{"dat_srq_free", "ku", []string{"dat.SRQ.Free"}, ""},
	}},
	{"Registry", []call{
		{"dat_registry_add_provider", "ku", []string{"registry.Register"}, ""},
		{"dat_registry_remove_provider", "ku", []string{"registry.Unregister"}, ""},
		{"dat_registry_list_providers", "ku", []string{"registry.List"}, ""},
		{"dat_registry_providers_related", "ku", []string{"registry.Related"}, ""},
	}},
	{"InfiniBand extension", []call{
		{"dat_ib_post_fetch_and_add", "ku", []string{"dat.EP.PostFetchAdd", "dat.IBFetchAndAdd"}, ""},
		{"dat_ib_post_cmp_and_swap", "ku", []string{"dat.EP.PostCompareSwap", "dat.IBCompareAndSwap"}, ""},
		{"dat_ib_post_rdma_write_immed", "ku", []string{"dat.EP.PostRDMAWriteImmediate", "dat.IBRDMAWriteImmed"}, ""},
		{"dat_ib_post_send_ud", "ku", []string{"dat.EP.PostSendUD", "dat.IBUDSend"}, ""},
		{"dat_ib_post_recv_ud", "ku", []string{"dat.EP.PostRecv", "dat.OpReceiveUD"}, ""},
		{"dat_ib_ud_ah_free", "ku", []string{"dat.AddressHandle.Free", "dat.IBUDAHFree"}, ""},
		{"dat_ib_ud_cm_free", "ku", nil, "no object of a datagram peer's set-up outlives its event, so there is nothing to free"},
		{"dat_ib_open_query, dat_ib_close_query", "u", nil, "calls of the C library; registry.List and IA.Query tell the same without opening twice"},
		{"dat_ib_query_counters, …print, …start, …stop", "ku", nil, "NOT_IMPLEMENTED, and the attribute DAT_COUNTERS is not there; EP.Query and EVD.Query have counters"},
		{"dat_ib_collective_*", "ku", nil, "NOT_IMPLEMENTED, and none of the attributes DAT_COLL_* is there: collectives are for libraries above"},
	}},
}
