"""RocketMQ's keys without effect here, so that an existing broker.conf causes no warnings.

All keys of its release 5.5.0 (broker, store, network, users, name server, proxy, controller), and
some of older ones, are settings of ours, or are listed here with their subject.
"""

_WITHOUT_EFFECT_TEXTS = {
    "storage in RocksDB: everything is in files here": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin
        combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
        combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
        combineCQUseRocksdbForLmq configManagerVersion enableRocksDBLog indexRocksDBEnable
        iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays memTableFlushIntervalMs
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
        popConsumerKVServiceLog realTimePersistRocksDBConfig rocksdbCompressionType
        rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
        statRocksDBCQIntervalSec storeType timerRocksDBEnable timerRocksDBPrecisionMs
        timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours
        timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
        transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
        transactionCheckRocksdbQueueCapacity transRocksDBEnable
        transWriteOriginTransHalfEnable useSeparateStorePathForRocksdbCQ
        useSingleRocksDBForAllConfigs
    """,
    "lite topics, which are not supported": """
        enableLiteEventMode enableLitePopLog liteEventCheckInterval
        liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
        liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable
        liteLagLatencyTopK litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
        liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
        maxLiteRenewNumPerChannel maxLiteSubscriptionCount maxLiteTopicSize
        maxSyncLiteSubscriptionRate minLiteTTl waitTimeMillsInLitePullQueue
    """,
    "RocketMQ's proxy and controller: see grpcPort and haEngine instead": """
        aclCacheExpiredSeconds aclCacheRefreshSeconds channelExpiredInSeconds
        consumerProcessorThreadPoolNums consumerProcessorThreadPoolQueueCapacity
        contextExpiredInSeconds controllerDLegerGroup controllerDLegerPeers
        controllerDLegerSelfId controllerRequestThreadPoolQueueCapacity controllerStorePath
        controllerThreadPoolNums controllerType defaultInvisibleTimeMills detectInterval
        detectTimeout electMasterMaxRetryCount enableAclRpcHookForClusterMode enableBatchAck
        enableElectUncleanMaster enableGrpcEpoll enableMessageBodyEmptyCheck
        enablePrintJstack enableProxyAutoRenew enableRemotingLocalProxyGrpc
        enableTopicMessageTypeCheck grpcBossLoopNum grpcClientConsumerLongPollingBatchSize
        grpcClientConsumerMaxLongPollingTimeoutMillis
        grpcClientConsumerMinLongPollingTimeoutMillis grpcClientIdleTimeMills
        grpcClientManagerThreadPoolNums grpcClientManagerThreadQueueCapacity
        grpcClientProducerBackoffInitialMillis grpcClientProducerBackoffMaxMillis
        grpcClientProducerBackoffMultiplier grpcClientProducerMaxAttempts
        grpcConsumerThreadPoolNums grpcConsumerThreadQueueCapacity
        grpcMaxConcurrentCallsPerConnection grpcMaxInboundMessageSize
        grpcProducerThreadPoolNums grpcProducerThreadQueueCapacity
        grpcProxyRelayRequestTimeoutInSeconds grpcRouteThreadPoolNums
        grpcRouteThreadQueueCapacity grpcServerPort grpcShutdownTimeSeconds
        grpcThreadPoolNums grpcThreadPoolQueueCapacity grpcTransactionThreadPoolNums
        grpcTransactionThreadQueueCapacity grpcWorkerLoopNum heartbeatSyncerThreadPoolNums
        heartbeatSyncerThreadPoolQueueCapacity heartbeatSyncerTopicClusterName
        heartbeatSyncerTopicName invisibleTimeMillisWhenClear isProcessReadEvent jraftConfig
        localProxyConnectTimeoutMs localServeAddr lockTimeoutMsInHandleGroup
        longPollingReserveTimeInMillis mappedFileSize maxDelayTimeMills
        maxInvisibleTimeMills maxMessageGroupSize maxRenewRetryTimes
        maxTransactionRecoverySecond maxUserPropertySize metadataThreadPoolNums
        metadataThreadPoolQueueCapacity metricCollectorAddress metricCollectorMode
        minInvisibleTimeMillsForRecv namesrvDomain namesrvDomainSubgroup
        notifyBrokerRoleChanged printJstackInMillis printThreadPoolStatusInMillis
        producerProcessorThreadPoolNums producerProcessorThreadPoolQueueCapacity
        proxyClusterName proxyMode proxyName remotingAccessAddr
        remotingDefaultThreadPoolNums remotingDefaultThreadPoolQueueCapacity
        remotingHeartbeatThreadPoolNums remotingHeartbeatThreadPoolQueueCapacity
        remotingListenPort remotingPullMessageThreadPoolNums
        remotingPullThreadPoolQueueCapacity remotingSendMessageThreadPoolNums
        remotingSendThreadPoolQueueCapacity remotingTopicRouteThreadPoolNums
        remotingTopicRouteThreadPoolQueueCapacity remotingUpdateOffsetThreadPoolNums
        remotingUpdateOffsetThreadPoolQueueCapacity remotingWaitTimeMillsInDefaultQueue
        remotingWaitTimeMillsInHeartbeatQueue remotingWaitTimeMillsInPullQueue
        remotingWaitTimeMillsInSendQueue remotingWaitTimeMillsInTopicRouteQueue
        remotingWaitTimeMillsInUpdateOffsetQueue renewAheadTimeMillis renewMaxThreadPoolNums
        renewMaxTimeMillis renewSchedulePeriodMillis renewThreadPoolNums
        renewThreadPoolQueueCapacity returnHandleGroupThreadPoolNums rocketMQClusterName
        rocketmqMQClientNum scanInactiveMasterInterval sendLatencyEnable startDetectorEnable
        subscriptionGroupConfigCacheExpiredSeconds subscriptionGroupConfigCacheMaxNum
        subscriptionGroupConfigCacheRefreshSeconds tlsCertWatchIntervalMs tlsTestModeEnable
        topicConfigCacheExpiredSeconds topicConfigCacheMaxNum topicConfigCacheRefreshSeconds
        topicRouteServiceCacheExpiredSeconds topicRouteServiceCacheMaxNum
        topicRouteServiceCacheRefreshSeconds topicRouteServiceThreadPoolNums
        topicRouteServiceThreadPoolQueueCapacity transactionDataExpireMillis
        transactionDataExpireScanPeriodMillis transactionDataMaxNum
        transactionDataMaxWaitClearMillis transactionHeartbeatBatchNum
        transactionHeartbeatPeriodSecond transactionHeartbeatThreadPoolNums
        transactionHeartbeatThreadPoolQueueCapacity useDelayLevel useEndpointPortFromRequest
        userCacheExpiredSeconds userCacheRefreshSeconds userPropertyMaxNum
    """,
    "controllers, DLedger and broker containers, which are not supported: see haEngine": """
        allAckInSyncStateSet asyncLearner brokerElectionPriority checkSyncStateSetPeriod
        controllerAddr controllerHeartBeatTimeoutMills dLegerGroup dLegerPeers dLegerSelfId
        enableAutoInSyncReplicas enableControllerInNamesrv fetchControllerAddrByDnsLookup
        isBrokerContainer isInBrokerContainer isolateLogEnable notifyMinBrokerIdChanged
        preferredLeaderId skipPreOnline storePathBrokerIdentity storePathDLedgerCommitLog
        storePathEpochFile syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod
        syncControllerMetadataPeriod totalReplicas
    """,
    "throttling of reads from old files, which does not exist here": """
        accessMessageInMemoryHotRatio cgColdReadThreshold coldCtrStrategyEnable
        coldDataFlowControlEnable coldDataScanEnable globalColdReadThreshold
        timerColdDataCheckIntervalMs usePIDColdCtrStrategy
    """,
    "topic compaction, which is not supported": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
        compactionThreadNum enableCompaction maxOffsetMapSize
    """,
    "caches and providers of users: they are in config/users.json and config/acls.json": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath
        authenticationMetadataProvider authenticationProvider authenticationStrategy
        authorizationMetadataProvider authorizationProvider authorizationStrategy
        statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
        userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    """,
    "how RocketMQ runs timers and delay levels, which work differently here": """
        allowRecallWhenBrokerNotWriteable appendTopicForTimerDeleteKey
        enableScheduleAsyncDeliver enableScheduleMessageStats
        scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
        timerCheckMetricsWhen timerCongestNumEachSlot timerEnableCheckMetrics
        timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs
        timerGetMessageThreadNum timerInterceptDelayLevel timerMetricSmallThreshold
        timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimelineEnable
        timerRecallToTimeWheelEnable timerReputServiceCorePoolSize
        timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRollWindowSlot
        timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
    """,
    "how RocketMQ records pops: here they are in a journal (docs/pop.md)": """
        appendAckAsync appendCkAsync defaultPopShareQueueNum
        enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold
        enablePopMetrics enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem
        maxPopPollingSize popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
        popCkStayBufferTimeOut popLongPollingForceNotifyInterval
        popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
        popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes
        popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent
        retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
        reviveQueueNum reviveScanTime skipWhenCKRePutReachMaxTimes
    """,
    "RocketMQ's own metrics, statistics and logs: see docs/metrics.md": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats
        commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg
        commercialTimerCount commercialTransCount debugLockEnable diskFallRecorded
        enableConnectionMetrics enableDetailStat enableLagAndDlqMetrics enableLmqStats
        enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics
        enableRemotingMetrics enableRequestMetrics enableStatsMetrics
        enableTransactionMetrics estimateAccumulation maxStatsIdleTimeInMinutes
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
        metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints
        metricsExporterType metricsExportIntervalInMills metricsGrpcExporterHeader
        metricsGrpcExporterIntervalInMills metricsGrpcExporterTarget
        metricsGrpcExporterTimeOutInMills metricsInDelta metricsLabel
        metricsLoggingExporterIntervalInMills metricsOtelCardinalityLimit
        metricsPromExporterHost metricsPromExporterPort printChannelGroups
        printChannelGroupsMinNum sampleCountThreshold sampleSteps
        transactionMetricFlushInterval
    """,
    "how RocketMQ checks transactions: see transactionTimeOut and transactionCheckMax": """
        checkTransactionMessageEnable transactionOpBatchInterval transactionOpMsgMaxSize
    """,
    "replication to RocketMQ's slaves: see haMode": """
        duplicationEnable enableBatchPush enableRemoteEscape enableSlaveActingMaster
        forwardTimeout haFlowControlEnable haMaxTimeSlaveNotCatchup haServerAddr
        maxHaTransferByteInSecond maxSlaveResendLength offsetCheckInSlave
        replicasPerDiskPartition supportActingMaster syncMasterFlushOffsetWhenStartup
    """,
    "registration at name servers: see namesrvAddr and registerNameServerPeriod": """
        brokerHeartbeatInterval brokerNotActiveTimeoutMillis cleanOfflineBrokerInterval
        clusterTest compatibleWithOldNameSrv compressedRegister disappearTimeAfterStart
        enableRegisterProducer enableSingleTopicRegister enableSplitMetadata
        enableSplitRegistration fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup
        fetchNamesrvAddrInterval forceRegister isScanAvailableNameSrv
        loadBalancePollNameServerInterval needWaitForService productEnvName
        returnOrderTopicConfigToBroker sendHeartbeatTimeoutMillis splitMetadataSize
        splitRegistrationSize unRegisterBrokerQueueCapacity updateNameServerAddrPeriod
        waitSecondsForService
    """,
    "threads, request queues and sockets: one event loop serves all connections": """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
        adminBrokerThreadPoolQueueCapacity batchDispatchRequestThreadPoolNums
        brokerFastFailureEnable channelExpiredTimeout channelNotActiveInterval
        clientAsyncSemaphoreValue clientCallbackExecutorThreads
        clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
        clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums
        clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity
        clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
        connectTimeoutMillis consumerManagerThreadPoolQueueCapacity
        consumerManageThreadPoolNums defaultThreadPoolNums defaultThreadPoolQueueCapacity
        disableCallbackExecutor disableNettyWorkerGroup dispatchCqThreads
        dispatchFromSenderThread enableFastChannelEventProcess enableNetWorkFlowControl
        enableReconnectForGoAway endTransactionPoolQueueCapacity
        endTransactionThreadPoolNums heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums
        loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests maxClientEventCount
        maxReconnectIntervalTimeSeconds processReplyMessageThreadPoolNums
        pullMessageThreadPoolNums pullThreadPoolQueueCapacity
        putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums
        putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
        recoverThreadPoolNums replyThreadPoolQueueCapacity sendMessageThreadPoolNums
        sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable
        serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
        serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
        serverWorkerThreads sharedByteBufferNum socksProxyConfig useEpollNativeSelector
        useTLS waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
        waitTimeMillsInHeartbeatQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
        waitTimeMillsInTransactionQueue writeBufferHighWaterMark writeBufferLowWaterMark
    """,
    "the path of a file: each has a fixed place below storePathRootDir": """
        abortFile brokerConfigPath configName configStorePath kvConfigPath
        readOnlyCommitLogStorePaths rocketmqHome storePathCheckpoint storePathConsumeQueue
        storePathIndex
    """,
    "how RocketMQ maps, locks, flushes and recovers files, which works differently here": """
        bitMapLengthConsumeQueueExt checkCommitLogOffsetOnRecover cleanSwapedMapInterval
        commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
        commitLogForceSwapMapInterval commitLogRecoverMaxNum commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum dataReadAheadEnable deleteConsumeQueueFilesInterval
        destroyMapedFileIntervalForcibly dispatchCqCacheNum enableAcceleratedRecovery
        enableAsyncReput enableBuildConsumeQueueConcurrently enableCalcFilterBitMap
        enableConsumeQueueExt enabledAppendPropCRC enableRunningFlagsInFlush
        expectConsumerNumUseFilter fastFailIfNoBufferInStorePool filterDataCleanTimeSpan
        flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
        flushConsumeQueueLeastPages flushConsumerOffsetHistoryInterval
        flushDelayOffsetInterval flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC
        indexFileReadEnable indexFileWriteEnable lockInStrictMode
        logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval
        logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mapedFileSizeCommitLog
        mapedFileSizeConsumeQueue mapedFileSizeConsumeQueueExt mappedFileSizeConsumeQueueExt
        mappedFileSizeTimerLog mappedFileSwapEnable maxBatchDeleteFilesNum maxChecksumRange
        maxConsumeQueueScan maxErrorRateOfBloomFilter maxMessageFilterNumForNotification
        maxRecoveryCommitlogFiles messageIndexSafe messageStorePlugIn
        osPageCacheBusyTimeOutMills putMessageTimeout putMsgIndexHightWater readUnCommitted
        recheckReputOffsetFromCq recoverConcurrently redeleteHangedFileInterval
        searchBcqByCacheEnable spinLockCollisionRetreatOptimalDegree storeCheckpoint
        topicQueueLockNum transferMsgByHeap transientStorePoolEnable transientStorePoolSize
        travelCqFileNumWhenGetMessage useABSLock useMessageFilterForNotification
        useReentrantLockWhenPutMessage wakeCommitWhenPutMessage wakeFlushWhenPutMessage
        warmMapedFileEnable writeWithoutMmap
    """,
    "how RocketMQ treats groups and offsets, and how it stops: not configurable here": """
        asyncSendEnable autoMessageVersionOnTopicLen broadcastOffsetExpireMaxSecond
        broadcastOffsetExpireSecond brokerIP2 clearRetryTopicWhenDeleteTopic clusterName
        configBlackList consumerFallbehindThreshold correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval defaultMessageRequestMode
        delayOffsetUpdateVersionStep disableConsumeIfConsumerReadSlowly
        enableBroadcastOffsetStore enableCleanExpiredOffset enableCreateSysGroup
        enableRetryTopicV2 enableShutdownGracefully highSpeedMode maxTopicLength
        persistConsumerOffsetIncrementally pullBatchMaxMessageCount
        realTimeNotifyConsumerChange rejectCheckGroup serverLoadBalancerEnable
        shutdownWaitTimeSeconds subscriptionExpiredTimeout useStaticSubscription
    """,
}
WITHOUT_EFFECT = {
    key: meaning for meaning, keys in _WITHOUT_EFFECT_TEXTS.items() for key in keys.split()
}
"""The subject of each key."""

# Keys whose promise would be broken silently by running without them: key -> what to do.
REFUSED = {
    "aclEnable": "the access control of RocketMQ 4 is not supported: use authenticationEnabled and "
    "authorizationEnabled, or remove the setting to run without",
    "migrateAuthFromV1Enabled": "plain_acl.yml is not read at the start: remove the setting, and "
    "run `rockhopper auth import plain_acl.yml` against the broker",
    "enableDLegerCommitLog": "DLedger's commit log has a different format and is not supported",
    "enableControllerMode": "controller mode is not supported",
}
